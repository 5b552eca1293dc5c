"""Expressions as hypothesis makes them, and what find says to them."""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from hypothesis import strategies as st

Words = tuple[bytes, ...]
C_LOCALE = {**os.environ, "LC_ALL": "C"}

_PATTERNS = st.sampled_from(
    [
        b"*", b"?", b"??", b"a*", b"*a*", b"*.txt", b"[a-c]*", b"[!a]*", b"[^a]*", b"[[:upper:]]*",
        b"*[[:digit:]]*", b"\\*", b"*\\**", b"star\\*", b"[", b"a[", b"[]a]*", b"[a\\]b]*", b"*\n*",
        b".*", b"[!-~]*", b"*[\x80-\xff]*", b"[z-a]", b"?[^a-z]*", b"d", b"dd", b"*/dd*", b"*d/*",
        b"**",
        b"", b"\\", b"a\\", b"[[:alpha:]-]*", b"*[.]*", b"[[.a.]]b*", b"*[[=b=]]*", b"[a-]*",
        b"*]*",
    ]
) | st.text("ab*?[]!-\\.^d/", max_size=6).map(str.encode)  # fmt: skip
_FOLDED = st.sampled_from(
    [b"*A*", b"abc.TXT", b"B", b"?B*", b"[A-C]*", b"*.TxT", b"[a-c]*", b"*\xc9*"]
)
_SIGN = st.sampled_from([b"", b"+", b"-"])
_TIMES = st.sampled_from(
    [ours + theirs for ours in (b"a", b"c", b"m") for theirs in (b"a", b"c", b"m")]
)
_REGEXES = {
    b"": [
        b".*", b".*/a.*", b".*\\(a\\|b\\)", b".*[a-c]+", b".*b?", b".*a*$", b"^.*d", b".*/[^/]*",
        b".*\\(.\\)\\1", b".*\\w", b".*\\W.*", b".*\\<a.*", b".*\\bab\\b.*", b".*[[:alpha:]]",
        b".*a\\+",
        b".*]", b".*\n.*", b"\\(.*\\)\\{1\\}", b"[^a]*", b".*\\s.*", b"*a", b".*\\`", b"\\`.*\\'",
    ],
    b"posix-extended": [
        b".*", b".*(a|b)", b".*[a-c]+", b".*b?", b"(.*/)?[^/]{1,3}", b".*/(.)\\1",
        b".*[[:upper:]].*",
        b".*\\.(txt|c)$", b"^(.*)$", b".*x{200}", b".*()", b".*(a|)", b"(.+)/d+", b".*[]a].*",
    ],
    b"posix-basic": [
        b".*", b".*\\(a\\|b\\)", b".*[a-c]\\+", b".*b\\?", b".*/[^/]\\{1,3\\}", b".*/\\(.\\)\\1",
        b".*[[:digit:]].*", b"*a*", b".*a|b", b".*\\(^a\\|b$\\)", b".*\\{0,2\\}",
    ],
    b"egrep": [b".*(a|b)", b".*{1", b"(.*)(x){2,}", b".*a{,2}", b"*a.*", b".*a\n.*b"],
    b"emacs": [b".*", b".*[a-c]+", b".*\\(a\\|b\\)", b".*\\s.*"],
    b"awk": [b".*(a|b)", b".*[\\]a].*", b".*a+b?"],
    b"gnu-awk": [b".*(a|b)", b".*{2}", b".*\\<a.*"],
    b"posix-awk": [b".*(a|b)", b".*/[^/]{2}"],
    b"grep": [b".*\\(a\\|b\\)", b".*a\\+", b".*\na"],
    b"sed": [b".*a\\?", b".*\\(b\\)"],
    b"posix-minimal-basic": [b".*a\\+", b".*\\(b\\)", b".*a*"],
    b"ed": [b".*[^a]"],
    b"posix-egrep": [b".*(txt|c)"],
    b"findutils-default": [b".*\n.*", b".*a\\|.*b"],
}  # fmt: skip
_MODES = st.sampled_from(
    [
        b"644",
        b"0",
        b"7777",
        b"u=rw,go=r",
        b"a+x",
        b"u+s",
        b"g=u",
        b"a=rX",
        b"o-w",
        b"+t",
        b"u=rwx,g=rx",
    ]
)


def _one(name: bytes, argument: st.SearchStrategy[bytes]) -> st.SearchStrategy[Words]:
    return argument.map(lambda text: (name, text))


def _of_names() -> list[st.SearchStrategy[Words]]:
    regexes = st.sampled_from(sorted(_REGEXES)).flatmap(
        lambda kind: st.builds(
            lambda name, text: ((b"-regextype", kind) if kind else ()) + (name, text),
            st.sampled_from([b"-regex", b"-regex", b"-iregex"]),
            st.sampled_from(_REGEXES[kind]),
        )
    )
    return [
        *(_one(name, _PATTERNS) for name in (b"-name", b"-path", b"-wholename", b"-lname")),
        *(_one(name, _FOLDED) for name in (b"-iname", b"-ipath", b"-iwholename", b"-ilname")),
        regexes,
        regexes,
        regexes,
        regexes,
        regexes,
    ]


def _of_status() -> list[st.SearchStrategy[Words]]:
    sizes = st.builds(
        lambda sign, n, unit: sign + n + unit,
        _SIGN,
        st.sampled_from([b"0", b"1", b"2", b"3", b"20", b"1024"]),
        st.sampled_from([b"", b"c", b"w", b"b", b"k", b"M", b"G"]),
    )
    perms = st.builds(bytes.__add__, st.sampled_from([b"", b"-", b"/"]), _MODES)
    return [
        _one(b"-size", sizes),
        _one(b"-size", sizes),
        _one(b"-perm", perms),
        _one(b"-perm", perms),
    ]


_REFERENCES = (
    b"plain",
    b"sparse",
    b"d",
    b"links/to file",
    b"links/nowhere",
    b"every/a",
    b"links/through",
)


def _tests() -> list[st.SearchStrategy[Words]]:
    number = st.integers(0, 12).map(lambda n: b"%d" % n)
    signed = st.builds(
        bytes.__add__, st.sampled_from([b"", b"+", b"-", b"-+", b"++", b"+-", b"- "]), number
    )
    days = st.builds(
        bytes.__add__, _SIGN, st.sampled_from([b"0", b"1", b"2", b"10", b"1.3", b"200", b"9999"])
    )
    minutes = st.builds(
        bytes.__add__, _SIGN, st.sampled_from([b"0", b"3", b"10", b"15.2", b"100000"])
    )
    kinds = st.lists(st.sampled_from(b"bcdpfls"), min_size=1, max_size=4, unique=True).map(
        lambda letters: b",".join(bytes([letter]) for letter in letters)
    )
    files = st.sampled_from(_REFERENCES)
    bare = b"-empty -nouser -nogroup -readable -writable -executable -true".split()
    return [
        *_of_names(),
        *_of_status(),
        *(_one(name, days) for name in (b"-mtime", b"-atime")),
        *(
            _one(name, st.sampled_from([b"0", b"-1", b"+1", b"-2"]))
            for name in (b"-ctime", b"-used")
        ),
        _one(b"-mmin", minutes),
        # Files were used whole and half days ago, and changed when the tree was made.
        _one(b"-amin", st.sampled_from([b"+500", b"-900", b"+900", b"-3000", b"+100000"])),
        _one(b"-cmin", st.sampled_from([b"+700", b"-700"])),
        _one(b"-used", days),
        _one(b"-type", kinds),
        _one(b"-type", kinds),
        _one(b"-xtype", kinds),
        _one(b"-links", signed),
        _one(b"-uid", st.sampled_from([b"0", b"+0", b"-2", b"54321"])),
        _one(b"-gid", st.sampled_from([b"0", b"+0", b"-2", b"54322"])),
        _one(b"-user", st.sampled_from([b"root", b"54321", b"daemon", b"65534"])),
        _one(b"-group", st.sampled_from([b"root", b"54322", b"daemon"])),
        _one(b"-samefile", files),
        _one(b"-newer", files),
        _one(b"-anewer", files),
        _one(b"-cnewer", files),
        st.builds(lambda times, file: (b"-newer" + times, file), _TIMES, files),
        _one(
            b"-newermt",
            st.sampled_from([b"2020-01-01", b"@1000000000", b"3 days ago", b"yesterday"]),
        ),
        _one(b"-newerma", files),
        _one(b"-fstype", st.sampled_from([b"tmpfs", b"ext4", b"overlay"])),
        st.sampled_from(bare).map(lambda word: (word,)),
        st.just((b"-prune",)),
        st.just((b"-prune",)),
        st.just((b"-false",)),
        st.just((b"-daystart", b"-mtime", b"1")),
    ]


_FORMATS = st.lists(
    st.sampled_from(
        [
            b"%p", b"%P", b"%f", b"%h", b"%H", b"%d", b"%s", b"%b", b"%k", b"%m", b"%#m", b"%M",
            b"%u",
            b"%g", b"%U", b"%G", b"%n", b"%i", b"%D", b"%F", b"%y", b"%Y", b"%l", b"%S", b"%t",
            b"%a",
            b"%T@", b"%T+", b"%TS", b"%TT", b"%TX", b"%TY-%Tm-%Td", b"%Tj", b"%TA", b"%A@",
            b"%Ac", b"%TH:%TM",
            b"%TD", b"%Tk", b"%Tl", b"%TZ", b"%Tr", b"%Tx", b"%Tp", b"%TU", b"%TW", b"%Tw",
            b"%TB", b"%Tb",
            b"%Th", b"%Ta", b"%TI", b"%TG", b"%Tn", b"%T%", b"%Cc", b"%c",
            b"%10s", b"%-10f|", b"%.3f", b"%10.2p", b"%05d", b"%+d", b"%08m", b"%-8m|", b"%5%",
            b"%%",
            b"\\t", b"\\\\", b"\\101", b"text ", b"%q", b"\\q", b"%-20.5l|", b"%012s", b"%12y",
            b"%#o",
        ]
    ),
    min_size=1,
    max_size=6,
).map(b"".join)  # fmt: skip
_ACTIONS = st.one_of(
    st.just((b"-print0",)),
    st.just((b"-print0",)),
    st.sampled_from([b"-exec", b"-execdir"]).map(
        lambda name: (name, b"printf", b"%s\\0", b"{}", b"+")
    ),
    _FORMATS.map(lambda text: (b"-printf", text + b"\\0")),
    _FORMATS.map(lambda text: (b"-fprintf", b"/dev/stdout", text + b"\\0")),
)


def _grown(inner: st.SearchStrategy[Words]) -> st.SearchStrategy[Words]:
    closed = st.one_of(inner, inner.map(lambda words: (b"(", *words, b")")))

    def joined(operator: Words) -> st.SearchStrategy[Words]:
        return st.builds(lambda a, b: (b"(", *a, *operator, *b, b")"), inner, closed)

    def bare(operator: Words) -> st.SearchStrategy[Words]:
        return st.builds(lambda a, b: (*a, *operator, *b), inner, closed)

    operators = [(), (b"-a",), (b"-and",), (b"-o",), (b"-or",)]
    negated = st.builds(
        lambda sign, a: (sign, b"(", *a, b")"), st.sampled_from([b"!", b"-not"]), inner
    )
    return st.one_of(negated, *map(joined, operators), *map(bare, operators))


def _with_comma(inner: st.SearchStrategy[Words]) -> st.SearchStrategy[Words]:
    """Behind a comma find 4.9 may move tests of names before it; but not across an action."""
    return st.builds(lambda a, b, c: (b"(", *a, *b, b",", *c, *b, b")"), inner, _ACTIONS, inner)


_OPTIONS = st.lists(
    st.sampled_from(
        [
            (b"-maxdepth", b"0"), (b"-maxdepth", b"1"), (b"-maxdepth", b"2"), (b"-mindepth", b"1"),
            (b"-mindepth", b"2"), (b"-depth",), (b"-d",), (b"-follow",), (b"-xdev",),
            (b"-daystart",), (b"-mount",),
            (b"-noleaf",), (b"-ignore_readdir_race",), (b"-nowarn",), (b"-warn",),
        ]
    ),
    max_size=2,
    unique=True,
).map(lambda some: tuple(word for words in some for word in words))  # fmt: skip
_FOLLOW = st.sampled_from([(), (), (), (b"-P",), (b"-H",), (b"-L",)])
_STARTS = st.sampled_from(
    [
        (b".",), (b".",), (b"./",), (), (b"d", b"links"), (b"plain",), (b"links/to dir",),
        (b"links/to dir/",),
        (b"d/dd/",), (b"d//dd//",), (b"B/", b"a"), (b"empty//", b"./x.txt/"),
        (b",", b"d/"), (b")",),
        (b"--", b"d"), (b".//",), (b"empty/.",), (b"empty/../d/",),
        (b"links/nowhere",), (b"d//",), (b"links/up", b"every"), (b"fifo", b"./d/"), (b"nothing",
        b"d"),
    ]
)  # fmt: skip


def searches(*, acting: bool) -> st.SearchStrategy[Words]:
    """Whole command lines, below the tree; with actions whose records end with NUL, or none."""
    tests = st.one_of(*_tests())
    leaves = st.one_of(tests, tests, _ACTIONS) if acting else tests
    expression = st.recursive(leaves, _grown, max_leaves=6)
    if acting:
        expression = st.one_of(expression, expression, _with_comma(expression))
    ended = st.builds(lambda words, last: (*words, *last), expression, _ACTIONS)
    return st.builds(
        lambda follow, starts, options, words: (*follow, *starts, *options, *words),
        _FOLLOW,
        _STARTS,
        _OPTIONS,
        ended if acting else expression,
    )


class Answer(NamedTuple):
    """What was found, sorted, and the exit code."""

    code: int
    records: list[bytes]


def answer(words: Words, code: int, text: bytes, *, acting: bool) -> Answer:
    """The answer that an output is: its records, which end with NUL or a newline.

    Whether a link to itself is a failure depends on the order of tests, which nobody promises.
    """
    failed = code if b"-xtype" not in words else 0
    return Answer(failed, sorted(text.split(b"\0" if acting else b"\n")))


def by_find(tree: bytes, words: Words, *, acting: bool, locale: str = "C") -> Answer | None:
    """What find has found; None if it refuses the search."""
    environment = {**os.environ, "LC_ALL": locale}
    done = subprocess.run(
        [b"find", *words], cwd=tree, env=environment, capture_output=True, check=False
    )
    fatal = (b"find: invalid", b"find: unknown", b"find: failed to compile", b"find: paths must")
    if done.returncode and any(done.stderr.startswith(text) for text in fatal):
        return None
    return answer(words, done.returncode, done.stdout, acting=acting)
