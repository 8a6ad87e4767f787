# shellcheck shell=bash disable=SC2161,SC2034,SC2154,SC2128,SC2064,SC2102,SC2016
# The loop that a persistent shell's bash runs; bash_channel.py explains it. It is sent as one line, without comments.
# __bj: text to run, _h: its length, _q: the same if it is sourced; _p: last text, _n: its nonce, _s: status, _f: flags;
# exported variables, _v: now, _e: as last reported, _c: empty unless they changed; _t: terminal; _x: `set -x` is on.
# [step]
__bj_step() {
  __bj_s=$? __bj_f=-;
  if [[ $__bj_t ]]; then builtin trap '' INT; builtin read -rst 0.001 -N 65536 __bj_n <&7; fi;
  if [[ $- == *x* ]]; then builtin set +x; __bj_x=x; fi;
  [[ -e /dev/fd/1 ]] || __bj_f+=x;
  __bj_n=; builtin read -rN 16 -u 9 __bj_n;
  if [[ -z $__bj_n ]]; then
    POSIXLY_CORRECT=1; unset -f builtin; unset POSIXLY_CORRECT;
    builtin read -rN 16 -u 9 __bj_n;
  fi;
  if [[ $__bj_t ]]; then builtin printf '\e]777;%s\a' "$__bj_n" >&7; fi;
  __bj_c='';
  if builtin export -p >|/dev/fd/6 && builtin mapfile -d '' __bj_v </dev/fd/6 && [[ $__bj_v != "$__bj_e" ]]; then
    __bj_e=$__bj_v __bj_c=$__bj_v;
  fi;
  builtin printf 's%s %s %s %s\0' "$__bj_n" "$__bj_s" "$__bj_f" "$__bj_c" >&8 || builtin exit 1;
  __bj='' __bj_h=''; builtin read -rN 8 -u 9 __bj_h;
  if [[ $__bj_h == 00000000 ]]; then IFS= builtin read -rd '' -u 9 __bj;
  else builtin read -rN "$__bj_h" -u 9 __bj; fi;
  if [[ -z $__bj ]]; then __bj_x=; builtin exit 0; fi;
  if [[ $__bj_t ]]; then
    if [[ $__bj_p ]]; then builtin history -s -- "$__bj_p"; fi; __bj_p=$__bj;
    if [[ $__bj == *set*o*@(vi|emacs)* ]]; then __bj_q=$__bj __bj='builtin . <(builtin printf %s "$__bj_q")'; fi;
    builtin trap - INT;
  fi;
  if [[ $__bj_x ]]; then
    [[ $- == *e* || $__bj_s == 0 ]] || __bj="{ __bj_last; } 2>/dev/null; $__bj";
    __bj="__bj_x=; builtin set -x; $__bj";
  fi;
  [[ $__bj ]];
};
__bj_last() { return "$__bj_s"; };
builtin readonly -f __bj_step __bj_last;
builtin readonly __bj_t;
builtin shopt -s expand_aliases; __bj_x='' __bj_e='' __bj_p='' __bj=1;
# [loop]
while { [[ $__bj ]]; } 2>/dev/null; do
  while { __bj_step; } 2>/dev/null; do
    if __bj_last; then builtin eval "$__bj" 6<&- 8>&- 9<&-; else builtin eval "$__bj" 6<&- 8>&- 9<&-; fi;
  done;
done
# [terminal line]
while { __bj_step; } 2>/dev/null; do
  if __bj_last; then builtin eval "$__bj" <&7 6<&- 7<&- 8>&- 9<&-; else builtin eval "$__bj" <&7 6<&- 7<&- 8>&- 9<&-; fi;
done
