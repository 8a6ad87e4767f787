"""A sandbox's files, blocking."""

from __future__ import annotations

from belljar.session import files
from belljar.sync.facade import Facade, blocking


class Files(Facade[files.Files]):
    """`box.files` of a blocking session: `box.files.read("src/app.py")`."""

    read = blocking(files.Files.read)
    write = blocking(files.Files.write)
    append = blocking(files.Files.append)
    list = blocking(files.Files.list)
    stat = blocking(files.Files.stat)
    exists = blocking(files.Files.exists)
    remove = blocking(files.Files.remove)
    mkdir = blocking(files.Files.mkdir)
    search = blocking(files.Files.search)
    upload = blocking(files.Files.upload)
    download = blocking(files.Files.download)
