"""Look at the masks that an audit suspects, decide about each, and write the corrected dataset.

``audit`` reads the folder of `jcas audit`, ``decisions`` keeps what people decide in an append-only log, ``server``
shows both as a local web page behind the locks of ``guard``, and ``export`` writes the corrected dataset. Nothing
here changes the audit or the source data; only ``server`` and ``guard`` need the extra ``jcas[review]``.
"""
