"""Python's own sockets reach this machine and no other; read by every Python that tests start."""

import ipaddress
import socket


def _is_here(host):
    if host in (None, "", b"", "localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse(host):
    raise PermissionError(f"tests make no network access, and this one asked for {host!r}")


def _only_here(name):
    """A method of sockets whose last argument is an address."""
    method = getattr(socket.socket, name)

    def guarded(self, *given):
        address = given[-1]
        if self.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
            _is_here(address[0]) or _refuse(address[0])
        return method(self, *given)

    setattr(socket.socket, name, guarded)


def _named_here(name):
    """A function that finds the address of a name."""
    function = getattr(socket, name)

    def guarded(host, *rest, **named):
        return function(host, *rest, **named) if _is_here(host) else _refuse(host)

    setattr(socket, name, guarded)


for name in ("connect", "connect_ex", "sendto", "sendmsg"):
    _only_here(name)
for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
    _named_here(name)
