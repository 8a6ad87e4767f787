"""Abstract text: ordinary strings in which single noncharacters stand for what is not known.

A value that the interpreter can compute is plain text. What it cannot know is one mark character, so that
concatenation, slicing, path arithmetic and even parsing again work on known and unknown text alike. The marks are
Unicode noncharacters; where an input contains one it is read as "unknown", which can only make a verdict stricter.
"""

from belljar.patterns import lazy_pattern

UNKNOWN = "\ufdd0"  # output of a program nobody modelled
NETWORK = "\ufdd1"  # came from the network
SECRET = "\ufdd2"  # contents of a credential
ATOM = "\ufdd3"  # unknown, but one word without a slash: a number, a date, a hash, a name
UNSET = "\ufdd4"  # a variable that nothing has set: most likely empty
FILE = "\ufdd5"  # contents of a file of the project
SENSITIVE = "\ufdd6"  # may be read here, must not be sent away: .env, the environment, an archive of everything
ENCODED = "\ufdd7"  # unknown text after base64, xxd and the like
STAR, ANY, BRACKET = "\ufdd8", "\ufdd9", "\ufdda"  # an active (unquoted) * ? [
SELF = "\ufddb"  # output that repeats for ever: `yes`, /dev/zero
DISGUISED = "\ufddc"  # text that the command itself holds, after a change that cannot be followed

GLOBS = STAR + ANY + BRACKET
HOLES = UNKNOWN + NETWORK + SECRET + ATOM + UNSET + FILE + SENSITIVE + ENCODED + SELF + DISGUISED
OPAQUE = UNKNOWN + NETWORK + SECRET + SENSITIVE + ENCODED + FILE + SELF + DISGUISED  # may be any text
PRIVATE = SECRET + SENSITIVE  # must not be sent away
HIDDEN = ENCODED + DISGUISED  # text that nobody can read
MAX_TEXT = 200_000

_SHOW = str.maketrans({
    **dict.fromkeys(UNKNOWN + ATOM + FILE + SELF, "…"), NETWORK: "<network>", SECRET: "<secret>", UNSET: "",
    SENSITIVE: "<private>", ENCODED: "<encoded>", STAR: "*", ANY: "?", BRACKET: "[", DISGUISED: "<disguised>",
})  # fmt: skip
_UNGLOB = str.maketrans({STAR: "*", ANY: "?", BRACKET: "["})
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
    """Active glob characters back to the characters themselves (quoted or assigned text)."""
    return text.translate(_UNGLOB)


def solid(text: str) -> str:
    """The text as it is when unset variables are empty."""
    return text.replace(UNSET, "")


def taints(text: str) -> str:
    """The holes of a text, each once: what is left after a transformation that cannot be followed."""
    return "".join(sorted(set(_HOLE.findall(text))))


def sayable(text: str) -> str:
    """The text without what cannot be written as UTF-8: half of a surrogate pair, from a literal of some language."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clip(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + UNKNOWN
