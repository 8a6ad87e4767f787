"""The images we ship: what they hold and how they are built."""
