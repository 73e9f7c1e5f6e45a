"""Pickles and a file of a graph that the release before the moved modules wrote, as it wrote them.

Made at commit 3471cb5a, of compiled functions: the metadata of `x[0].mul_(2), x.t()`, the partition
and the convention of `x * 2` with gradient, the convention of a function without arguments; and of
`y = (x @ w).view(-1); y[0].mul_(2); return y.sum(), x[1]` the files of both graphs.
"""

import base64
import zlib

_A_FUNCTION_META = (
    b"eNpdVE1vEzEQTdt8kaStkMqtElQC0QoUIbgioQpUqVooVSs48LU42dmM1Y29eL1Ne6gEh1aN5Bvm1/FnmPEm/SCX2J"
    b"7xzJv3nvdn/c/fei383JrQNpMW+oUVIyj6qRjawrveTqmGVmr1Dqzwv/3WL3/mN11TqrykONbcnV1e3g7Xjc7Au9V5"
    b"TWn61Ulz38ixyOaZriFVAic+qhUDVx9zjVuXqpOuBVVoE4+rHpvRYrR04aOlaOHCu7s30hN7mgOBbg1OYyXGQMmulW"
    b"Za2BfP/bk/+C8bjuWQMC293v9AmZbjnVQqkVWdcMN1qy1RYiyBdCsj0BQzp3QEOXVan9cDIs30RWn1yIikP0QhlXft"
    b"8B/rlAem8o08E9yyI8yoHIOyD54RQlnEGYjUX7plAz9KaaCIuYqfunu3DmJhYziRlgLdiaG2RZwIQnrpVmdbBh6Opm"
    b"65JGpNrPS81iqBUSRtjLKw2pxyzjGYgsSNB+WYxokWXBNlkoCiWGuW7rfcSoGCMWiSXCZAwSackCjW77k2zUcNciQU"
    b"PUZB53EmLGWVg3Oaji7NrdLbzqQo3qfBMVduwQ6uuPqxhEmw00da7ATzXdmpUdGJj/GRqx8S89ehRZ17t3xDVd63dR"
    b"70T9gAzQIyGNpK/zoRT3PWotoFQ8vBCJWw0k2ar8ysx7XNaOmcmDj3uI732RQ8Bl89Iq/6PXw6dQ0yRMY0dI6AbEAc"
    b"B1I6FeOB7kvXJVkTINGArk3xIW661oxuoq2rJ+paCHwydT3KlyoFA2rI1XqpzjI9KeKBKAKZbmUu4ABSbYAN2SZ2SW"
    b"+alBLw5TWh+Aq3Z7s3xNvObL2Lb91CxQXub+EBbuBhGDlapBe1wO/q9tj4iSfGz1P8MsWvl/gtTILxHn5n1CimOODW"
    b"w6iGCS2I1gYDZtu0LcNVtlobklCqERsxeHlMpMUitWDYRakYy0yGa52hLpWN6akwUY2c3l6oMCGXkWBF+G5wCT5toN"
    b"ZHvKAvUvDmGT95IbOSCHI1mqL/DzHC8Jk="
)

_A_PARTITION = (
    b"eNrlUk2P0zAQLWhXLOXKiQOqLCFtUZRuW3HJr0CcVqqiajaeNNY6trGd0rKKBAduuWF+EP+McdqUckPLEd/ezLz35s"
    b"NfLn7sL0b9616D9lJ4TJ2HDbrUgPXCC63WJRTehe75+yESvofp19CG6+5Zqe0nsDx0Lwe6sKlDK0CKzxi6S6mBOyLc"
    b"/nwyGj0wqq/Bs4wdyycbC6ZiCduidSTNsnkyZgpqpBojQZD9wYJRvEYPjmWr8QPjfm9iTUkGfrkgBVdBjKwWyTIn5K"
    b"3gES6TOUGOW1HE+sI0rM1Ji8QLPIqVQsbczNdmVujagJ/V96nZk6oUilLvElY2qvB9h4e+KOdxF0fhWE760PVumk0s"
    b"+saqye7t4uBTaEUbVT5aRaw0H2y1OYgVWGnJ0ZKk1X0nxooapFvfUCgOzbKbNhkYBUgZ3cFuMPrXTYSEoix7Q5xFfq"
    b"LRJvBjgyoOT6B3+0NNN940/lxgzvKhkdUxTY3kbd6Ow7fwIXRXd1Dc92evrm5fPX3kXQeR/+qwRNggcdanvZ5dinbG"
    b"17WO05V0faRzVeAi7bSrR/+Cv9D+16/SW/z+uWcf5tLBFnmYdi+UPt09dKPQ3KW/AJ5oeMs="
)

_A_CONVENTION = (
    b"eNpFjDEKwkAQRVOYRSz0Ah7ANNt4BEsbbxB2zRAWN7OyMxEbQQsLYTrHC3hSIxL81f+P//918noXP8nSJY6BwRK7Fs"
    b"jSut4nPAFySKgy2/zDU6ubXnQlJuCxZ1JZjOOQbU4RVMwuh87FsStlwAbOui3I31WmwzX1HTQDkNI7AtJKDKcD4NfN"
    b"CZjqFhCy45T10Xv7AfxdQvs="
)

_AN_EMPTY_CONVENTION = (
    b"eNprYJlazAABPTKJ+SU5mSWpesUliempxXrFxvHJ+XllqXklmfl5U3q4nBGcyVM0G6fUTtHoYcvMKygtKZ6i2cMBVF"
    b"tcmpuaMsWboYc1KbE4FSTKVpKfnZoHYvEVp5YUx6en5qUWJZbkF03pLE3SAwAlbS90"
)


PICKLES = {
    name: zlib.decompress(base64.b64decode(text))
    for name, text in (
        ("FunctionMeta", _A_FUNCTION_META),
        ("Partition", _A_PARTITION),
        ("Convention", _A_CONVENTION),
        ("Convention without roles", _AN_EMPTY_CONVENTION),
    )
}

_BACKWARD_FILE = (
    b"eNq9lG2vmjAYhr/7K0gTE0wqQlGPM9uy/2EM6aAqWaFdW3yJ8b/vaTlywOwYiXOfSGmf++rd5+WMNkIV1KAlosLw3D"
    b"Bvq6jcIYz2TOlclGgZ4QEqacHgDBdaJz9p+utAVYbgf8EM1Wi5GpxRZk7SntlwQU1MQEHvqP2zijFZw8qoPLNLgiNY"
    b"Zmyfp/Z8Kit0wXcF2tE9Q6N2bF/utB0c9gwmXdchflKg/7NNn/FOcNwJd5d5QiD+y/XXUEGS05S9l9Am53ZvYgo5SU"
    b"UhqZlsJ0bRvAzkCaR5XsL+HKNNVabGFacrSdgy7GiLWDFTqdI7Bboq/BH2juC7vuhj2ouO9tdCZBVn3z/0tWHSpzwQ"
    b"JdM+wV48ChT7XeWK6QQaJ0ss9LofY4+MRn3wszvWTlCBQVHxxCe9NKf3NL1vnn/0fniHUbDP2cEfR6M6LakotaGl0a"
    b"7lYACI7JolISHSpW0neMYUyClhb3J+/yJN9yxLQth4nxtS5QXlOong4m5moGXoLHyqhQC+ZcBPRGVkZZxaHRlh5J4a"
    b"kgMHN6DLMJI7qm1YM5w+5FPKubVM1ZZZ09YorGFpDaFhhDBUyfoqTx6Sh8qGvLMyrV/YWeiYuqWyo6Rl1uZCs0CLNt"
    b"z4NdxbtzFQ7WRpuNMnuNHnXOiIuvVb7Kljt9561psdN2zyuOcZcMct7Pw1WM04S00bPEe4nvt9Krc3F4ZCG/qG3Kx+"
    b"KbK2muiUGuO6tm0ZDRdd3/P/k+Yvt6X9ovKCEVtqKXSntmE+jQkeRw38rTc8bODxnWRTc5PvyI7GYRShBr34N+h68n"
    b"ZQxELqCb2qGdfRHqL1ZX0Z/AGf+De4"
)

_FORWARD_FILE = (
    b"eNqllOuK6jAUhf/7FCUgKGS0t5kDwoF5j1IktKkW0iQn2fGCzLvPTqq1zgyOcvCP2cn6urLXbk+kUaZjQFaEKRAt8G"
    b"hjmN4SSnbc2FZJskrohEjWcTwjlLVrVOyZqQmWOw7MklUxOZEajtofaYRikKUIsFvmK0VKsxJXYNraLzOa4LLmu7by"
    b"5yvtyAe9C8hoOgakTwPS/wXkY/mz4rH2m7TELmrBKn5uY9MKv7eETi8r1WkGy80SDGvlQh8RKlqJ+zkljZMVhHxCKr"
    b"gF/OBzPEZ/o9kheo/288Wu5fvZSzLvLT7Gfr3HLuJy0TmxnqVPMd/uMA0HZ2R0XFjXzeY0OmCD+75USlpgEmxoHA6h"
    b"qi9tUhqVoW9bJWpuEGdUcKJN2zFh1zGW/HiSVRyM/q5IBkVyVVRMCO+VmQ33bvFdwftjBQveC5n6B00TUl7EKcbN/z"
    b"kufcgx7Z954+Ir06c0JuLwFC9JORCzMTF5hGi54BWMmRmhMY0HZD5GpgPy3sVvb52T8E79QMseofUG17ZiACGLsVEy"
    b"fb11mz3Pd90Y+kaodELQBnPm4e/P3vOBnV7ZyoF2N838M0Tej1BxPuOH7nQZK8t2vA5jeP54Xufso8Tf5BPRRa/9"
)

FILES = tuple(
    zlib.decompress(base64.b64decode(text)).decode() for text in (_FORWARD_FILE, _BACKWARD_FILE)
)
