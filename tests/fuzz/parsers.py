"""The parser for each kind of frame that an init sends."""

from belljar.link import frames
from belljar.link.frames import From

PARSERS = {
    From.ENDED: frames.parse_ended,
    From.READ_REPLY: frames.parse_read_reply,
    From.LIST_REPLY: frames.parse_list,
    From.SPAWN_ERROR: frames.parse_spawn_error,
    From.ERROR: frames.parse_u32,
    From.WELCOME: frames.parse_welcome,
    From.STARTED: frames.parse_u32,
    From.INPUT_ACK: frames.parse_u64,
    From.PIPE: frames.parse_u64,
    From.PONG: frames.parse_u64,
}
