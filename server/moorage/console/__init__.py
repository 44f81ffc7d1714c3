"""The page at ``/console``: static files, served by :mod:`moorage.http.pages`.

Here: HTML, CSS and one script over ``moorage.js``, without anything from other hosts. Not here: anything that a
replica runs.
"""
