"""Marks: characters in a text that stand for what is not known.

What the interpreter can compute is plain text. What it cannot know is one mark, so concatenation, slicing and parsing
work on known and unknown text alike. Marks are Unicode noncharacters. If the input itself contains one, it is taken as
unknown, which can only make the verdict stricter.
"""

from belljar.patterns import lazy_pattern

UNKNOWN = "\ufdd0"  # may be any text
NETWORK = "\ufdd1"  # text from the network
SECRET = "\ufdd2"  # contents of a credential
ATOM = (
    "\ufdd3"  # unknown, but one word without a slash: a number, a date, a hash, a name
)
UNSET = "\ufdd4"  # a variable that is not set: most likely empty
FILE = "\ufdd5"  # contents of a project's file
SENSITIVE = "\ufdd6"  # may be read, must not be sent away: .env, the environment
ENCODED = "\ufdd7"  # unknown text after base64, xxd and the like
STAR, ANY, BRACKET = "\ufdd8", "\ufdd9", "\ufdda"  # an active (unquoted) * ? [
ENDLESS = "\ufddb"  # repeats for ever: `yes`, /dev/zero
DISGUISED = "\ufddc"  # known text after a change that is not computed

GLOBS = STAR + ANY + BRACKET
HOLES = (
    UNKNOWN
    + NETWORK
    + SECRET
    + ATOM
    + UNSET
    + FILE
    + SENSITIVE
    + ENCODED
    + ENDLESS
    + DISGUISED
)
OPAQUE = (
    UNKNOWN + NETWORK + SECRET + SENSITIVE + ENCODED + FILE + ENDLESS + DISGUISED
)  # more than one word
PRIVATE = SECRET + SENSITIVE  # must not be sent away
HIDDEN = ENCODED + DISGUISED  # text of the command that nobody can read
MAX_TEXT = 200_000

_SHOW = str.maketrans(
    {
        **dict.fromkeys(UNKNOWN + ATOM + FILE + ENDLESS, "…"),
        NETWORK: "<network>",
        SECRET: "<secret>",
        UNSET: "",
        SENSITIVE: "<private>",
        ENCODED: "<encoded>",
        STAR: "*",
        ANY: "?",
        BRACKET: "[",
        DISGUISED: "<disguised>",
    }
)
_UNGLOB = str.maketrans({STAR: "*", ANY: "?", BRACKET: "["})
_PLAIN = _UNGLOB | {ord(UNSET): None}
_HOLE = lazy_pattern(f"[{HOLES}]")
_GLOB = lazy_pattern(f"[{GLOBS}]")


def show(text: str) -> str:
    """The text for a person to read."""
    return text.translate(_SHOW)


def known(text: str) -> bool:
    return _HOLE.search(text) is None


def has(text: str, marks: str) -> bool:
    return any(mark in text for mark in marks)


def has_glob(text: str) -> bool:
    return _GLOB.search(text) is not None


def unglob(text: str) -> str:
    """The text with marks of globs as plain characters."""
    return text.translate(_UNGLOB)


def drop_unset(text: str) -> str:
    """The text with unset variables as empty."""
    return text.replace(UNSET, "")


def plain_text(text: str) -> str:
    """Both: the text as a program gets it."""
    return text.translate(_PLAIN)


def taints(text: str) -> str:
    """The marks of a text, each once: what is known of it after a change that is not computed."""
    return "".join(sorted(set(_HOLE.findall(text))))


def encodable(text: str) -> str:
    """The text as valid UTF-8: a string literal may contain half of a surrogate pair."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_unseen(text: str) -> bool:
    """Whether nothing of the text is known."""
    return UNKNOWN in text and not drop_unset(text).strip(UNKNOWN + " \n")


def clip(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + UNKNOWN
