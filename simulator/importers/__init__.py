"""Importers: one module for each trace format, found by scanning this folder; nothing is registered anywhere.

A module is an importer when it has these three names:

`TITLE: str`
    What people call the format ("PyTorch Kineto").

`recognise(source: Source) -> int`
    0: not this format; 1: readable as a last resort (plain Chrome JSON alone answers that); 2: certainly this
    format. It looks at `source.head` (the first 64 kB, decompressed) and opens the source only where the
    format's marks can come later; it never raises. Claims must exclude each other: two that are certain are an
    error, so look for marks that only this format has.

`read(source: Source, diagnostics: Diagnostics, strict: bool) -> list[RankTrace]`
    The events, one RankTrace for each rank that the file itself tells apart. `rank` is what the file says, NONE
    (-1) where it says nothing: the loader then asks the file's name or the user. The first RankTrace carries
    the `diagnostics` that was handed in, further ones a fresh Diagnostics each. Damage goes through
    `sources.report(diagnostics, strict, reason, place)`, which counts it or, where reading is strict, raises
    TraceError; notes that are no damage go to `diagnostics.add`. Whatever the bytes are, it returns a table or
    raises TraceError with one clear sentence. Structure without times (execution traces) has `timed=False`.

What importers share lives beside this folder: `reading.sources` (pieces, whole content, a real path),
`chrome.reader` (Chrome JSON events of any size, repaired where damaged), `chrome.collector` (the
same as columns, for large files) and `reading.table_builder` (an EventTable filled row by row).
"""
