/* The relay: TCP connections of the sandbox's loopback over stdin and stdout. */
#ifndef BELLJAR_RELAY_H
#define BELLJAR_RELAY_H

int relay_main(int argc, char **argv);

#endif
