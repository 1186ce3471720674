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
    ("verbosity 1\r\nquit now\r\nverbosity 1\r\n", "OK\r\n"),
    // Wrong numbers of words.
    ("set k 0 0\r\nset\r\n", "ERROR\r\nERROR\r\n"),
    (
        "set k 0 0 1 word\r\nx\r\nset k 0 0 1 word word\r\nx\r\nset k 0 0 1 word noreply\r\nx\r\ncas k 0 0 1 77 1\r\nx\r\ncas k 0 0 1 1 1 1\r\nx\r\nget k\r\n",
        "STORED\r\nERROR\r\nERROR\r\nEXISTS\r\nERROR\r\nVALUE k 0 1\r\nx\r\nEND\r\n",
    ),
    // A `cas` without its number.
    (
        "cas k 0 0 7\r\nversion\r\ncas k 0 0 7 noreply\r\nversion\r\nget k\r\n",
        "CLIENT_ERROR bad command line format\r\nEND\r\n",
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

/// Input with meta commands for an empty cache, and the answer.
pub(crate) const META_DIALOGUES: &[(&str, &str)] = &[
    // Reads.
    (
        "set k 7 0 5\r\nhello\r\nmg k\r\nmg k v\r\nmg k s t f k v Oabc\r\nmg k s v P1 Lpath\r\nmg none\r\nmg none v k O1 t\r\nmg none q v\r\nmn\r\n",
        "STORED\r\nHD\r\nVA 5\r\nhello\r\nVA 5 s5 t-1 f7 kk Oabc\r\nhello\r\nVA 5 s5\r\nhello\r\nEN\r\nEN knone O1\r\nMN\r\n",
    ),
    (
        "set k 0 0 1\r\nx\r\nmg k c\r\nmg k c v\r\nmg k h\r\nmg k h\r\n",
        "STORED\r\nHD c1\r\nVA 1 c1\r\nx\r\nHD h1\r\nHD h1\r\n",
    ),
    ("set k 0 0 1\r\nx\r\nmg k u h\r\nmg k h\r\nmg k h\r\n", "STORED\r\nHD h0\r\nHD h0\r\nHD h1\r\n"),
    (
        "set k 0 100 1\r\nx\r\nmg k t\r\nmg k T0 t\r\nmg k t T200\r\nmg k t\r\nmg k T-1\r\nmg k\r\n",
        "STORED\r\nHD t100\r\nHD t-1\r\nHD t-1\r\nHD t200\r\nHD\r\nEN\r\n",
    ),
    // Stores.
    (
        "ms k 1\r\nx\r\nmg k v f t\r\nms k 2 F9 T100\r\nyy\r\nmg k v f t\r\n",
        "HD\r\nVA 1 f0 t-1\r\nx\r\nHD\r\nVA 2 f9 t100\r\nyy\r\n",
    ),
    (
        "ms k 1 c\r\nx\r\nms k 1 c k O7\r\ny\r\nms k 0 q\r\n\r\nmg k v c s\r\nms k 1\r\nz\r\n",
        "HD c1\r\nHD c2 kk O7\r\nVA 0 c3 s0\r\n\r\nHD\r\n",
    ),
    (
        "ms k 1 ME\r\nx\r\nms k 1 ME\r\ny\r\nms k 2 MA\r\nyz\r\nms k 1 MP\r\nw\r\nmg k v\r\nms k 1 MR\r\nr\r\nmg k v\r\nms k 1 MS\r\ns\r\nmg k v\r\n",
        "HD\r\nNS\r\nHD\r\nHD\r\nVA 4\r\nwxyz\r\nHD\r\nVA 1\r\nr\r\nHD\r\nVA 1\r\ns\r\n",
    ),
    (
        "ms k 1 MA\r\nx\r\nms k 1 MP k\r\nx\r\nms k 1 MR Oo\r\nx\r\nms k 1 MR q\r\nx\r\nmn\r\n",
        "NS\r\nNS kk\r\nNS Oo\r\nNS\r\nMN\r\n",
    ),
    ("ms k 1 F3 T100\r\nx\r\nms k 1 MA F4 T5\r\ny\r\nmg k v f t\r\n", "HD\r\nHD\r\nVA 2 f3 t100\r\nxy\r\n"),
    (
        "ms k 1\r\nx\r\nms k 1 C1\r\ny\r\nms k 1 C1\r\nz\r\nms none 1 C1\r\nz\r\nmg k v\r\nms k 1 C3 MR\r\nr\r\nmg k v\r\n",
        "HD\r\nHD\r\nEX\r\nNF\r\nVA 1\r\ny\r\nEX\r\nVA 1\r\ny\r\n",
    ),
    (
        "ms k 1\r\nx\r\nms k 1 C1 MA\r\ny\r\nms k 1 C1 MA\r\nz\r\nms k 1 C2 MP\r\nw\r\nmg k v\r\nms k 1 C0 MA\r\nv\r\nmg k v\r\nms k 1 C0\r\nu\r\n",
        "HD\r\nHD\r\nEX\r\nHD\r\nVA 3\r\nwxy\r\nHD\r\nVA 4\r\nwxyv\r\nEX\r\n",
    ),
    // Stale values.
    (
        "ms k 1\r\nx\r\nmd k I\r\nmg k v c\r\nmg k v c\r\nms k 1 C1 I\r\ny\r\nmg k v\r\nmg k v\r\nms k 1\r\nz\r\nmg k v\r\n",
        "HD\r\nHD\r\nVA 1 c2 X W\r\nx\r\nVA 1 c2 Z X\r\nx\r\nHD\r\nVA 1 Z X\r\ny\r\nVA 1 Z X\r\ny\r\nHD\r\nVA 1\r\nz\r\n",
    ),
    (
        "ms k 1\r\nx\r\nmd k I T100\r\nmg k t\r\nmd k I\r\nmg k v\r\nmd k I q\r\nmg k v\r\n",
        "HD\r\nHD\r\nHD t100 X W\r\nHD\r\nVA 1 X W\r\nx\r\nVA 1 X W\r\nx\r\n",
    ),
    ("ms k 1\r\nx\r\nms k 1 C9 I\r\ny\r\nms k 1 I\r\nz\r\nmg k v\r\n", "HD\r\nEX\r\nHD\r\nVA 1\r\nz\r\n"),
    (
        "ms k 1 T10\r\nx\r\nmg k R5\r\nmg k R20 t\r\nmg k R20\r\nmg k R20 q\r\n",
        "HD\r\nHD\r\nHD t10 W\r\nHD Z\r\nHD Z\r\n",
    ),
    (
        "ms k 1\r\nx\r\nmg k R100 v\r\nmg k T10 R100\r\nmg k T10 R100\r\n",
        "HD\r\nVA 1\r\nx\r\nHD W\r\nHD Z\r\n",
    ),
    // Items that are made.
    (
        "mg k N100 v t c\r\nmg k N100 v t\r\nmg k v\r\nms k 1 T0\r\nx\r\nmg k N100 v t\r\n",
        "VA 0 t100 c1 W\r\n\r\nVA 0 t100 Z\r\n\r\nVA 0 Z\r\n\r\nHD\r\nVA 1 t-1\r\nx\r\n",
    ),
    ("mg k N0 t\r\nmg k t\r\nmg k N100 k O1 q\r\n", "HD t-1 W\r\nHD t-1 Z\r\nHD kk O1 Z\r\n"),
    // Deletes.
    (
        "md k\r\nms k 1\r\nx\r\nmd k k Ox\r\nmg k\r\nmd k q\r\nmd k q k\r\nmn\r\n",
        "NF\r\nHD\r\nHD kk Ox\r\nEN\r\nNF\r\nNF kk\r\nMN\r\n",
    ),
    ("ms k 1\r\nx\r\nmd k C9\r\nmd k C9 q\r\nmd k C1\r\nmg k\r\n", "HD\r\nEX\r\nEX\r\nHD\r\nEN\r\n"),
    // Numbers.
    (
        "ma k\r\nma k q O1\r\nma k N100 J13 v t\r\nma k v\r\nma k D10 v t k\r\nma k MD v\r\nma k M- D5 v\r\nma k MI D2 v\r\nma k M+ v\r\nma k MD D100 v\r\nma k q\r\nma k q v\r\nmn\r\n",
        "NF\r\nNF O1\r\nVA 2 t100\r\n13\r\nVA 2\r\n14\r\nVA 2 t100 kk\r\n24\r\nVA 2\r\n23\r\nVA 2\r\n18\r\nVA 2\r\n20\r\nVA 2\r\n21\r\nVA 1\r\n0\r\nMN\r\n",
    ),
    ("ma k N0 v\r\nma k T100 t\r\nma k t T50\r\nma k t\r\n", "VA 1\r\n0\r\nHD t100\r\nHD t100\r\nHD t50\r\n"),
    (
        "set k 0 0 1\r\n5\r\nma k c\r\nma k C1\r\nma k C2 v\r\nma k C0 v\r\nma none C7\r\n",
        "STORED\r\nHD c2\r\nEX\r\nVA 1\r\n7\r\nVA 1\r\n8\r\nNF\r\n",
    ),
    ("set k 3 0 20\r\n18446744073709551615\r\nma k v\r\nmg k f\r\n", "STORED\r\nVA 1\r\n0\r\nHD f3\r\n"),
    (
        "set k 0 0 1\r\nx\r\nma k\r\nma k q\r\nset k 0 0 0\r\n\r\nma k\r\nma k C9\r\n",
        "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nSTORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    ),
    // Keys in base64.
    (
        "ms Zm9v 1 b k\r\nx\r\nmg Zm9v b v k\r\nmg foo v k\r\nget foo\r\nma Zm9v b k\r\nms foo 1\r\n5\r\nmg foo k\r\nmg Zm9v b k\r\nma Zm9v b v k O1\r\nmd Zm9v b k\r\nmd Zm9v b k\r\n",
        "HD kZm9v b\r\nVA 1 kZm9v b\r\nx\r\nVA 1 kZm9v b\r\nx\r\nVALUE foo 0 1\r\nx\r\nEND\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\nHD\r\nHD kfoo\r\nHD kfoo\r\nVA 1 kZm9v b O1\r\n6\r\nHD kZm9v b\r\nNF kZm9v b\r\n",
    ),
    (
        "ms ACAKDQ== 1 b\r\nx\r\nmg ACAKDQ== b v k\r\nmg AAAA b k\r\n",
        "HD\r\nVA 1 kACAKDQ== b\r\nx\r\nEN kAAAA b\r\n",
    ),
    (
        "mg k b\r\nmg Zm9 b\r\nmg Z=== b\r\nmg ==== b\r\nms k 1 b\r\nx\r\nmn\r\n",
        "CLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nMN\r\n",
    ),
    // Debugging.
    (
        "me none\r\nme\r\nme Zm9 b\r\nme none x y\r\nmn\r\n",
        "EN\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nEN\r\nMN\r\n",
    ),
    // Errors.
    ("mg\r\nms\r\nmd\r\nma\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\n"),
    ("ms k\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("ms k x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("ms k -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("ms k 1x\r\n", "CLIENT_ERROR bad command line format\r\n"),
    ("ms k S1\r\n", "CLIENT_ERROR bad command line format\r\n"),
    (
        "ms k 1 Z\r\nx\r\nms k 1 T\r\nx\r\nms k 1 Tx\r\nx\r\nms k 1 F\r\nx\r\nms k 1 F-1\r\nx\r\nms k 1 C\r\nx\r\nms k 1 Cx\r\nx\r\nms k 1 M\r\nx\r\nms k 1 MXY\r\nx\r\nms k 1 MX\r\nx\r\nms k 1 MX Z\r\nx\r\nms k 1 k k\r\nx\r\nmg k\r\n",
        "CLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR incorrect length for M token\r\nCLIENT_ERROR incorrect length for M token\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR duplicate flag\r\nEN\r\n",
    ),
    (
        "ms k 1 O12345678901234567890123456789012\r\nx\r\nms k 1 O1234567890123456789012345678901\r\nx\r\nmg k O12345678901234567890123456789012\r\nmg none q O12345678901234567890123456789012\r\nmd k O12345678901234567890123456789012\r\n",
        "CLIENT_ERROR opaque token too long\r\nHD O1234567890123456789012345678901\r\nCLIENT_ERROR opaque token too long\r\nCLIENT_ERROR opaque token too long\r\nCLIENT_ERROR opaque token too long\r\n",
    ),
    (
        "mg k v v\r\nmg k z\r\nmg k Z\r\nmg k T\r\nmg k Tx\r\nmg k N\r\nmg k N1x\r\nmg k R\r\nmg k Rx\r\nmg k q z\r\nmg k -\r\nmg k 1\r\n",
        "CLIENT_ERROR duplicate flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR bad token in command line format\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\n",
    ),
    (
        "ma k D\r\nma k Dx\r\nma k D-1\r\nma k J\r\nma k Jx\r\nma k N\r\nma k MX\r\nma k MXX\r\nma k M\r\nma k z\r\nma k v v\r\nma k q z\r\n",
        "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid mode for ma M token\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n",
    ),
    (
        "ms k 4\r\nlonger\r\nms k 4 q\r\nab\r\nxmn\r\nmg k\r\n",
        "CLIENT_ERROR bad data chunk\r\nERROR\r\nCLIENT_ERROR bad data chunk\r\nERROR\r\nEN\r\n",
    ),
    (
        "mg k a v s t c f h l k O1 q u N1 T1 R1 P L I\r\nmg k v s t c f h l k O1 q u N0 T0 R0 P L D1\r\n",
        "CLIENT_ERROR options flags are too long\r\nVA 0 s0 t-1 c1 f0 h0 l0 kk O1 W\r\n\r\n",
    ),
    ("mg k v1 t1 q1\r\nset k 0 0 1\r\nx\r\nmg k v1 t1\r\nmn 1 2 3\r\n", "STORED\r\nVA 1 t-1\r\nx\r\nMN\r\n"),
    (" mg  k   v \r\n  ms  k  1   T0  \r\nx\r\n mg  k   v\r\n", "EN\r\nHD\r\nVA 1\r\nx\r\n"),
];
