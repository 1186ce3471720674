//! Dialogues with a cache server: input, and memcached's answers.

/// Input for an empty cache, and the answer.
pub(crate) const DIALOGUES: &[(&str, &str)] = &[
    // Store and read.
    ("set k 7 0 5\r\nhello\r\nget k\r\n", "STORED\r\nVALUE k 7 5\r\nhello\r\nEND\r\n"),
    ("get k\r\n", "END\r\n"),
    ("set k 4294967295 0 0\r\n\r\nget k\r\n", "STORED\r\nVALUE k 4294967295 0\r\n\r\nEND\r\n"),
    ("set k 0 0 4\r\na\r\nb\r\nget k\r\n", "STORED\r\nVALUE k 0 4\r\na\r\nb\r\nEND\r\n"),
    (
        "set a 1 0 1\r\nA\r\nset b 2 0 1\r\nB\r\nget a x b a\r\n",
        "STORED\r\nSTORED\r\nVALUE a 1 1\r\nA\r\nVALUE b 2 1\r\nB\r\nVALUE a 1 1\r\nA\r\nEND\r\n",
    ),
    ("set k 0 0 1\r\nx\r\ngets k\r\n", "STORED\r\nVALUE k 0 1 1\r\nx\r\nEND\r\n"),
    (
        "add k 0 0 1\r\nx\r\nadd k 0 0 1\r\ny\r\nget k\r\n",
        "STORED\r\nNOT_STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    ),
    (
        "replace k 0 0 1\r\nx\r\nset k 0 0 1\r\nx\r\nreplace k 3 0 1\r\ny\r\nget k\r\n",
        "NOT_STORED\r\nSTORED\r\nSTORED\r\nVALUE k 3 1\r\ny\r\nEND\r\n",
    ),
    ("append k 0 0 1\r\nx\r\nprepend k 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
    (
        "set k 5 0 1\r\nb\r\nappend k 9 0 1\r\nc\r\nprepend k 9 0 1\r\na\r\nget k\r\n",
        "STORED\r\nSTORED\r\nSTORED\r\nVALUE k 5 3\r\nabc\r\nEND\r\n",
    ),
    (
        "cas k 0 0 1 1\r\nx\r\nset k 0 0 1\r\nx\r\ncas k 1 0 1 2\r\ny\r\ngets k\r\n",
        "NOT_FOUND\r\nSTORED\r\nSTORED\r\nVALUE k 1 1 3\r\ny\r\nEND\r\n",
    ),
    (
        "set k 0 0 1\r\nx\r\ncas k 0 0 1 77\r\ny\r\nget k\r\n",
        "STORED\r\nEXISTS\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    ),
    // Changes.
    (
        "delete k\r\nset k 0 0 1\r\nx\r\ndelete k\r\nget k\r\ndelete k 0\r\n",
        "NOT_FOUND\r\nSTORED\r\nDELETED\r\nEND\r\nNOT_FOUND\r\n",
    ),
    (
        "incr k 1\r\ndecr k 1\r\nset k 3 0 2\r\n99\r\nincr k 1\r\nget k\r\ndecr k 1\r\nget k\r\ndecr k 1000\r\n",
        "NOT_FOUND\r\nNOT_FOUND\r\nSTORED\r\n100\r\nVALUE k 3 3\r\n100\r\nEND\r\n99\r\nVALUE k 3 2\r\n99\r\nEND\r\n0\r\n",
    ),
    ("set k 0 0 20\r\n18446744073709551615\r\nincr k 6\r\n", "STORED\r\n5\r\n"),
    ("set k 0 0 3\r\n 7 \r\nincr k 1\r\n", "STORED\r\n8\r\n"),
    (
        "set k 0 0 3\r\nabc\r\nincr k 1\r\ndecr k 1\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n\
      CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    (
        "touch k 10\r\nset k 0 0 1\r\nx\r\ntouch k 10\r\ngat 20 k x\r\ngats 0 k\r\n",
        "NOT_FOUND\r\nSTORED\r\nTOUCHED\r\nVALUE k 0 1\r\nx\r\nEND\r\nVALUE k 0 1 1\r\nx\r\nEND\r\n",
    ),
    (
        "set k 0 0 1\r\nx\r\nflush_all\r\nget k\r\nset k 0 0 1\r\ny\r\nget k\r\n",
        "STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE k 0 1\r\ny\r\nEND\r\n",
    ),
    ("flush_all 10\r\nflush_all -1\r\nflush_all 0\r\n", "OK\r\nOK\r\nOK\r\n"),
    ("verbosity 1\r\nverbosity 0 noreply\r\ncache_memlimit 128\r\n", "OK\r\nOK\r\n"),
    // Without answers.
    (
        "set k 0 0 1 noreply\r\n1\r\nadd k 0 0 1 noreply\r\nx\r\nreplace k 0 0 1 noreply\r\n2\r\nappend k 0 0 1 noreply\r\n0\r\n\
      prepend k 0 0 1 noreply\r\n1\r\nincr k 5 noreply\r\ndecr k 1 noreply\r\ntouch k 9 noreply\r\nget k\r\n",
        "VALUE k 0 3\r\n124\r\nEND\r\n",
    ),
    (
        "set k 0 0 1 noreply\r\nx\r\ncas k 0 0 1 9 noreply\r\ny\r\ndelete k noreply\r\nget k\r\nflush_all noreply\r\nflush_all 5 noreply\r\n\
      delete k noreply\r\nincr k 1 noreply\r\nget k\r\n",
        "END\r\nEND\r\n",
    ),
    (
        "set k x 0 1 noreply\r\nx\r\nset k 0 0 1 noreply\r\nxyz\r\nincr k x noreply\r\nget k\r\n",
        "ERROR\r\nEND\r\n",
    ),
    // Lines.
    ("set k 0 0 1\nx\r\nget k\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"),
    ("  set   k  0 0   1  \r\nx\r\n get  k  \r\n", "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"),
    (
        "\r\n\n \r\nGET k\r\nfoo\r\nfoo bar baz\r\ngets\r\nget\r\nget  \r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    ("quit\r\nversion\r\n", ""),
    ("verbosity 1\r\nquit now\r\nversion now\r\nverbosity 1\r\n", "OK\r\nERROR\r\nERROR\r\nOK\r\n"),
    // Wrong numbers of words.
    ("set k 0 0\r\nset\r\n", "ERROR\r\nERROR\r\n"),
    (
        "set k 0 0 1 word\r\nx\r\nset k 0 0 1 word word\r\nx\r\nset k 0 0 1 word noreply\r\nx\r\ncas k 0 0 1\r\nx\r\ncas k 0 0 1 77 1\r\nx\r\ncas k 0 0 1 1 1 1\r\nx\r\nget k\r\n",
        "STORED\r\nERROR\r\nERROR\r\nERROR\r\nEXISTS\r\nERROR\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    ),
    (
        "incr\r\nincr k\r\nincr k 1 2 3\r\ndecr k\r\ntouch k\r\ntouch\r\ntouch k 1 2 3\r\nincr k 1 2\r\ntouch k 1 2\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
    ),
    (
        "gat\r\ngat 1\r\ngats\r\ndelete\r\ndelete k 0 0 0\r\nflush_all 1 2 3\r\nverbosity\r\nverbosity 1 2 3\r\ncache_memlimit\r\n",
        "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n",
    ),
    (
        "delete k 0 0\r\nflush_all 1 2\r\nverbosity 1 2\r\nverbosity noreply\r\nincr k noreply\r\ntouch k noreply\r\nverbosity x noreply\r\n\
      incr k 1 2 noreply\r\n",
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\nOK\r\nOK\r\nERROR\r\n",
    ),
    // A key that looks like a word of the protocol, limits that are too low to store any value, and a
    // browser, which gets no answer.
    ("delete noreply\r\nset noreply 0 0 1\r\nx\r\ndelete noreply\r\n", "NOT_FOUND\r\nSTORED\r\nDELETED\r\n"),
    (
        "cache_memlimit 7\r\ncache_memlimit 0 noreply\r\nset k 0 0 1\r\nx\r\n",
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\nSTORED\r\n",
    ),
    ("set k 0 0 1\r\nx\r\nPOST / HTTP/1.1\r\nHost: localhost\r\n\r\nflush_all\r\n", "STORED\r\n"),
    // Words of the wrong format. Their values are not parsed as requests.
    (
        "set k x 0 7\r\nversion\r\nset k -1 0 7\r\nversion\r\nset k 4294967296 0 7\r\nversion\r\nset k 0 x 7\r\nversion\r\n\
      cas k 0 0 7 x\r\nversion\r\nget k\r\n",
        "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n\
      CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nEND\r\n",
    ),
    (
        "set k 0 0 x\r\nset k 0 0 -1\r\nset k 0 0 2147483646\r\n",
        "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
    ),
    (
        "incr k x\r\nincr k -1\r\ndecr k 18446744073709551616\r\ntouch k x\r\ngat x k\r\nflush_all x\r\n",
        "CLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid numeric delta argument\r\n\
      CLIENT_ERROR invalid numeric delta argument\r\nCLIENT_ERROR invalid exptime argument\r\n\
      CLIENT_ERROR invalid exptime argument\r\nCLIENT_ERROR invalid exptime argument\r\n",
    ),
    (
        "delete k 1\r\nverbosity x\r\ncache_memlimit x\r\n",
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n\
      CLIENT_ERROR bad command line format\r\nERROR\r\n",
    ),
    // Values of another length than the announced one. The bytes behind that length are a request again.
    ("set k 0 0 4\r\nlonger\r\nget k\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\nEND\r\n"),
    ("set k 0 0 4\r\nab\r\nget k\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
];
