"""What harmful code looks like, in whatever language: patterns over its text, of which lexscan.py makes effects."""

import re

from .folding import _STRING
from .quoting import listed

TICKS = re.compile(r"(?:qx|%x)\s*(?:\{([^}]*)\}|\(([^)]*)\)|\[([^\]]*)\]|/([^/]*)/|!([^!]*)!|\|([^|]*)\||'([^']*)')")
WRITE = re.compile(
    r"(?:writeFile(?:Sync)?|appendFile(?:Sync)?|createWriteStream|file_put_contents|File\.(?:write|"
    r"binwrite)|IO\.(?:write|binwrite)|Deno\.writeTextFile(?:Sync)?|Bun\.write|outputFile(?:Sync)?|"
    r"truncate(?:Sync)?|spit|WriteFile)\s*\(?\s*(" + _STRING + ")"
)
OPEN = re.compile(
    r"(?:\bopen|fopen|io\.open|File\.(?:open|new)|openSync|sysopen|copyFile(?:Sync)?|rename(?:Sync)?|"
    r"\bcopy|symlink(?:Sync)?|FileUtils\.\w+|File\.(?:rename|symlink))\s*\(?\s*([^;\n]*)"
)
READ = re.compile(
    r"(?:readFile(?:Sync)?|file_get_contents|readfile|\bfile|File\.(?:read|readlines|foreach|open|"
    r"new)|IO\.(?:read|readlines)|createReadStream|slurp|include|require_once|Deno\.readTextFile(?:Sync)?|"
    r"fopen|io\.open|io\.lines|\bopen|readLines|loadfile|dofile)\s*\(?\s*([^;\n]*)"
)
PRINT = re.compile(
    r"(?:\bprint(?:f|ln)?|\bputs|\becho|console\.log|process\.stdout\.write|\bsay|io\.write|\bcat|"
    r"\$stdout\.(?:write|print)|STDOUT\.(?:write|print)|fmt\.Print\w*)\s*\(?\s*("
    + _STRING
    + r")(?=\s*[;)}\n,]|\s*$|\s+(?:for|if|unless|while)\b)"
)
SOCKET = re.compile(
    r"new WebSocket|net\.(?:Socket|connect|createConnection|Dial)|"
    r"require\(['\"]net['\"]\)|fsockopen|stream_socket_client|"
    r"TCPSocket|IO::Socket|Socket\.(?:tcp|new)|socket\(|use Socket|UDPSocket|require\(['\"]socket['\"]\)|"
    r"/inet/tcp|TCPServer|createServer|java\.net\.Socket|connect\("
)
REQUEST = re.compile(  # what the other side sent, not merely compared
    r"\.(?:url|query|body|params|headers|search\w*)\b(?!\s*[!=]==?)|\.on\(\s*['\"](?:data|message)|onmessage|\.pipe\(|require\(['\"](?:node:)?(?:net|tls)"
)
SERVER = re.compile(
    r"\.listen\(|ListenAndServe|WEBrick|[sS]inatra|HTTP::Daemon|Mojolicious|\bserve\(|HttpServer|\$_(?:GET|POST|REQUEST|SERVER|COOKIE)|[rR]ack"
)
SENT = (
    r"(?:\bparams\b|\b(?:req|request|ctx|c|r)\.\w+|\$_(?:GET|POST|REQUEST|SERVER|COOKIE)|\bquery\b|"
    r"searchParams|->(?:uri|content|param)\b)"
)
RUNS = (
    r"(?:`|%x|\b(?:system|[eE]xec\w*|spawn\w*|popen\w*|Command|passthru|shell_exec|eval)\b)"
    r"(?!\s*\(\s*['\"`]\w+['\"`]\s*\))[^\n;]{0,120}?"
)
SHELLISH = re.compile(
    r"/bin/(?:ba|da|z|k)?sh|['\"](?:sh|bash|cmd(?:\.exe)?)['\"]|\bsh (?:-i|\d?[<>]&)|cmd\.exe|STDIN|dup2|\$stdin"
)
BOMB = re.compile(
    r"fork\b[^\n]{0,12}redo|fork\s*(?:\{[^}]*\}|\(\))?\s*(?:while|until)|"
    r"(?:while|until|loop|for)\b[^;]{0,40}?[({\s](?:1|true|;;|do)?[^\n]{0,60}\bfork\b|:\(\)\s*\{|1\s+while\s+fork"
)
FOREVER = re.compile(
    r"(?:while\s*\(?\s*(?:[tT]rue|1)\b|for\s*\(\s*;\s*;\s*\)|\bloop\s*(?:\{|do\b)|setInterval\()"
    r"(?!.{0,400}\b(?:sleep|wait\w*|await|break|read|poll|communicate)\b).{0,80}"
    r"(?:(?:spawn|fork|[pP]open|Deno\.Command)(?!Sync)\w*|(?:\)|\bcp?|\bchild_process)\.exec(?:File)?)\s*\(|"
    r"function\s+(\w+)[^\n]{0,80}spawn\w*\(\s*process\.[^\n]{0,80}\b\1\(",
    re.S,
)
RESPAWN = re.compile(  # a program that starts itself
    r"(?:spawn|fork|exec|[pP]open|system)\w*\s*\(?[^\n;]{0,80}?(?:(?<!dirname\()__(?:filename|FILE__|file__)\b(?!\)\.(?:parent|resolve))|\bexecArgv|\$0\b|\$PROGRAM_NAME|"
    r"\bargv(?:\[1\]|\.slice\(1|\s*[,)]))"
)


def respawns(code: str) -> bool:
    """Processes without end: in an endless loop, or a program that starts itself again and again."""
    bare = re.sub(_STRING, '""', code)
    loops = re.search(r"\b(?:for|while|loop|until|set(?:Interval|Immediate|Timeout))\b", bare)
    again = loops or len(RESPAWN.findall(code)) > 1
    guarded = re.search(r"process\.env\.|is(?:Primary|Master|MainThread)|os\.environ", bare)
    return bool(FOREVER.search(bare) or (again and not guarded and RESPAWN.search(code)))


KILL = re.compile(
    r"kill\s*\(?\s*['\"]?(?:9|KILL|SIGKILL|-9|TERM|15)['\"]?\s*(?:,|=>)\s*-?1\b|process\.kill\(\s*-?1\b|"
    r"posix_kill\(\s*-?1\b|\b[kK]ill\(\s*-1"
)
SETUID = re.compile(  # a mode that is set in another way than by chmod's numbers
    r"chmod[^\n]{0,200}S_IS[UG]ID|S_IS[UG]ID[^\n]{0,200}chmod|O_CREAT[^\n;]{0,60},\s*0o?[2-7][0-7]{3}\b|"
    r"\b(?:mode|external_attr)['\"]?\s*(?:=>|[|:=]=?)[^\n;,]{0,40}?(?:S_IS[UG]ID|\b0o?(?:10)?[2-7][0-7]{3}\b)"
)
ROOT = re.compile(
    r"change_privilege|"
    r"set(?:re|e|res)?uid\s*\(?\s*0|POSIX::setuid|Process::(?:Sys\.)?(?:UID\.)?(?:set|change)?\w*uid\w*\s*\(?=?\s*0|"
    r"process\.set[eu]*[ug]id\(|posix_set\w*uid\(\s*0|\$[<>]\s*=\s*0|\$UID\s*=\s*0"
)
FETCH = re.compile(
    r"\bgetstore\(|\bmirror\(|DownloadFile|\bget\(\s*['\"]https?:|https?\.get\(|\bfetch\(|Net::HTTP|open-uri|URI\.open|LWP|HTTP::Tiny|"
    r"file_get_contents\(\s*['\"]https?:|curl_exec|axios|require\(['\"]https?['\"]\)|socket\.http|"
    r"WebClient|urlopen|requests\.get|HttpURLConnection|new URL\(|\bdownload(?:\.file)?\("
)
EVAL = re.compile(
    r"\beval\b|new Function\s*\(|instance_eval|class_eval|assert\s*\(|create_function|\bload(?:string)?\s*\(|"
    r"Function\s*\(|vm\.run\w+|\brunIn\w+|\bsource\(|dofile|preg_replace\([^)]*/e|require\s*\(?\s*\$|\beval_string"
)


EXECISH = re.compile(
    r"\b(?:system2?|exec\w*|spawn\w*|popen\w*|shell_exec|passthru|proc_open|pcntl_exec|child_process|subprocess|readpipe"
    r"|qx|run-program|shell script|call_user_func\w*|Open3|ProcessBuilder|commandLine|Exec"
    r"|(?:shell-command|call-process|start-process|make-process)[\w-]*"
    r"|os[.:](?:cmd|execute|system)|System\.(?:cmd|shell|Process))\b"
    r"|\b(?:send|Command|shell|sh|run|cmd|command|execute|Process|getRuntime)\b\s*(?:\(|[\"\[{]|::|\.)"
    r"|process\.(?:binding|mainModule)|`|\.!|open\s*\(?\s*\w+\s*,|zx|\$`|-> *\(|(?<!my )\$\w+\s*\("
)
MODULES = ("", ".js", ".mjs", ".cjs", ".ts", ".rb", ".lua", ".pm", ".pl", ".php")
RUN = re.compile(r"\b(?:system2?|exec\w*|spawn\w*|popen\w*|shell_exec|passthru|proc_open|eval)\b")
DECODES = re.compile(
    r"\b(?:tr|y)/|\bs/|\b(?:un)?pack1?\b|\bchr\b|fromC(?:har|ode)|[dD]ecode|\batob\b|b64|base64|rot13|strrev|strtr|str_replace|"
    r"rawToChar|charCodeAt|\.char\b|\bChar\(|\bxor\b|\"\"[)\]]*[.:](?:tr|g?sub|replace\w*|split|bytes|chars|reverse|each_char|unpack)\b"
)
ARGUMENTS = re.compile(r"argv|ARGV|\barg\[|\bshift\b|commandArgs|\bARGS\b|os\.Args|Deno\.args")
STDIN = re.compile(r"\$_\b|\$0\b|STDIN|\bgets\b|ARGF|readFileSync\(0|stdin|<>|php://input|io\.read|io\.lines\(\)")
SUBSTITUTION = re.compile(  # what perl's s/…/…/ looks for and puts in is text, unless it is evaluated
    r"(?:^|(?<=[;{\s]))(?<!=~)(?<!=~\s)s([/#|!,])(?:\\.|(?!\1).)*\1(?:\\.|(?!\1).)*\1(?!\w*e)"
)
PROGRAM_PATH = re.compile(r"^(?:(?:/usr(?:/local)?)?/s?bin/|\.{0,2}/\S*/|\./)(?=[^/]+$)")
EXEC_NAME = re.compile(r"system2?|exec\w*|spawn\w*|popen\w*|shell_exec|passthru|proc_open|pcntl_exec|child_process")
OPTION_WORDS = frozenset(listed("new String List of true false null nil undefined process env cwd console log"))
FED_SHELL = re.compile(  # a shell that is handed no text of its own, so it reads what another command gives it
    r"(?<!shell: )(?<!shell:)(?<!=> )['\"]\|?\s*(?:/\S*/)?(?:ba|da|z|k)?sh['\"](?!\s*,\s*\[?\s*['\"](?!w|r\+))"
)
CHANGISH = re.compile(
    r"\b(?:l?chmod\w*|l?chown\w*|rename\w*|mv|"
    r"move\w*|Move\w*)\b"
)
READISH = re.compile(r"open|read|file|slurp|load|cat|copy|include|get|<", re.I)
ENGINE = re.compile(r"(?:docker|containerd|podman|crio)\.sock|/proc/1/(?:root|ns|cwd|mem)")
POISON = re.compile(
    rf"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|PAGER|EDITOR|PERL5OPT|RUBYOPT)['\"]?(?:\s*[\]}}])?\s*(?:=>|=|:|,)\s*(?:\(\s*)?({_STRING})"
)


LISTS = re.compile(r"readdir|scandir|listdir|\bDir\b|\bwalk|readDir|opendir|\bfind\b|glob")
WIPES = re.compile(  # a file in a variable is opened anew, cut short or given a text of its own
    rf"(?:[wW]rite\w*|file_put_contents)\s*\(?\s*(?!['\"`])[^;\n]{{1,80}},\s*{_STRING}\s*[)}}\n]|[tT]runcate\w*\s*\(?\s*[^\s'\"`]|"
    rf"open\w*\s*\(?\s*[^;\n]{{1,60}},\s*['\"](?:w|>)b?['\"]|File\.(?:open|new)\s*\(?\s*\w+\s*,\s*['\"]w"
)
EDITS = re.compile(r"readFile|file_get_contents|\.read\b|readlines|slurp|IO\.read|<\$?\w+>|fread")
