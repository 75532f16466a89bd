"""Allocates device memory from many kinds of Python code and prints, for every allocation, its size and
the stack it came from as the interpreter shows it: innermost first, one line per frame."""

import ctypes
import os
import sys
import threading

MEM_DEV = 0
libraries = [ctypes.CDLL("libascend_hal.so"), ctypes.PyDLL("libascend_hal.so")]
lock = threading.Lock()
count = 0


def show(size, frame):
    lines = []
    while frame is not None:
        code = frame.f_code
        lines.append("%s(%d): %s" % (code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)))
        frame = frame.f_back
    os.write(1, ("\t".join([str(size), *lines]) + "\n").encode())


def allocate():
    global count
    with lock:
        count += 1
        number = count
    size = 4096 * number
    block = ctypes.c_void_p()
    hal = libraries[number % 2]
    hal.halMemAlloc(ctypes.byref(block), ctypes.c_uint64(size), ctypes.c_uint64(MEM_DEV)), show(size, sys._getframe())
    hal.halMemFree(block)


def recurse(depth):
    if depth:
        recurse(depth - 1)
    else:
        allocate()


def generate():
    allocate()
    yield
    allocate()


class Model:
    def __call__(self):
        self.forward()

    def forward(self):
        try:
            raise ValueError
        except ValueError:
            [allocate() for _ in range(2)]


def main():
    for _ in range(3):
        allocate()
        recurse(3)
        recurse(30)
        list(generate())
        Model()()
        sorted([1, 2], key=lambda _: allocate() or 0)
    threads = [threading.Thread(target=recurse, args=(5,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = os.fork()
    recurse(2)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


main()
