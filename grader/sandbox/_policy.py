"""The system calls that the sandbox refuses, from which the seccomp program is made."""

from enum import Enum
from errno import EAFNOSUPPORT, ENOSYS, EPERM
from typing import NamedTuple


class When(Enum):
    """The condition on a row's first or second argument."""

    ALWAYS = "always"
    FLAGS = "argument 0 has one of the bits"
    NOT = "argument 0 is another value"
    OPTION = "argument 0 is the value"
    REQUEST = "argument 1 is the value"


class Denied(NamedTuple):
    """One refused system call. A number is None if the architecture has no such call."""

    name: str
    x86_64: int | None
    aarch64: int | None
    errno: int = EPERM
    when: When = When.ALWAYS
    value: int = 0


AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""From linux/audit.h."""
X32_BIT = 0x40000000
"""x86_64 kernels may accept a second table of the same numbers with this bit set."""
LAST_KNOWN_SYSCALL = 469
"""Newer calls are refused with ENOSYS: programs fall back, and no new hole opens."""

CLONE_NEW_NAMESPACES = 0x7E020000
AF_UNIX = 1
TIOCSTI = 0x5412
TIOCLINUX = 0x541C
F_SETSIG = 10
PR_SET_CHILD_SUBREAPER = 36

DENIED: tuple[Denied, ...] = (
    # Other processes. Processes in one sandbox may signal each other, but not access each other's memory.
    Denied("ptrace", 101, 117),
    Denied("process_vm_readv", 310, 270),
    Denied("process_vm_writev", 311, 271),
    Denied("process_madvise", 440, 440),
    Denied("pidfd_getfd", 438, 438),
    Denied("kcmp", 312, 272),
    Denied("prlimit64", 302, 261, EPERM, When.NOT, 0),
    Denied("perf_event_open", 298, 241),
    # Without a pid namespace, the first process of a sandbox adopts what others leave behind, so that it is found.
    Denied("prctl", 157, 167, EPERM, When.OPTION, PR_SET_CHILD_SUBREAPER),
    # Namespaces and mounts. clone3's flags are in memory, which a filter cannot read: ENOSYS makes libc use clone.
    Denied("unshare", 272, 97),
    Denied("setns", 308, 268),
    Denied("clone", 56, 220, EPERM, When.FLAGS, CLONE_NEW_NAMESPACES),
    Denied("clone3", 435, 435, ENOSYS),
    Denied("mount", 165, 40),
    Denied("umount2", 166, 39),
    Denied("pivot_root", 155, 41),
    Denied("chroot", 161, 51),
    Denied("open_tree", 428, 428),
    Denied("open_tree_attr", 467, 467),
    Denied("move_mount", 429, 429),
    Denied("fsopen", 430, 430),
    Denied("fsconfig", 431, 431),
    Denied("fsmount", 432, 432),
    Denied("fspick", 433, 433),
    Denied("mount_setattr", 442, 442),
    Denied("name_to_handle_at", 303, 264),
    Denied("open_by_handle_at", 304, 265),
    Denied("fanotify_init", 300, 262),
    # Sockets. A network namespace permits AF_VSOCK, and io_uring creates sockets without the call `socket`.
    Denied("socket", 41, 198, EAFNOSUPPORT, When.NOT, AF_UNIX),
    Denied("socketpair", 53, 199, EAFNOSUPPORT, When.NOT, AF_UNIX),
    Denied("io_uring_setup", 425, 425, ENOSYS),
    Denied("io_uring_enter", 426, 426, ENOSYS),
    Denied("io_uring_register", 427, 427, ENOSYS),
    # What the kernel does later for processes that are stopped then: send a chosen signal, such as SIGCONT, expire,
    # complete, or free the gigabytes of a descriptor that only a message still refers to.
    Denied("timer_create", 222, 107),
    Denied("timerfd_create", 283, 85),
    Denied("fcntl", 72, 25, EPERM, When.REQUEST, F_SETSIG),
    Denied("io_setup", 206, 0),
    Denied("sendmsg", 46, 211),
    Denied("sendmmsg", 307, 269),
    # Large parts of the kernel that no build and no kernel launch needs.
    Denied("bpf", 321, 280),
    Denied("userfaultfd", 323, 282),
    Denied("add_key", 248, 217),
    Denied("request_key", 249, 218),
    Denied("keyctl", 250, 219),
    Denied("modify_ldt", 154, None),
    Denied("uselib", 134, None),
    Denied("lookup_dcookie", 212, 18),
    Denied("nfsservctl", 180, 42),
    # Input into the terminal that the grader was started from.
    Denied("ioctl", 16, 29, EPERM, When.REQUEST, TIOCSTI),
    Denied("ioctl", 16, 29, EPERM, When.REQUEST, TIOCLINUX),
    # Objects that outlive their processes without an ipc namespace.
    Denied("shmget", 29, 194),
    Denied("semget", 64, 190),
    Denied("msgget", 68, 186),
    Denied("mq_open", 240, 180),
    # The machine itself.
    Denied("kexec_load", 246, 104),
    Denied("kexec_file_load", 320, 294),
    Denied("init_module", 175, 105),
    Denied("finit_module", 313, 273),
    Denied("delete_module", 176, 106),
    Denied("reboot", 169, 142),
    Denied("swapon", 167, 224),
    Denied("swapoff", 168, 225),
    Denied("quotactl", 179, 60),
    Denied("quotactl_fd", 443, 443),
    Denied("acct", 163, 89),
    Denied("settimeofday", 164, 170),
    Denied("clock_settime", 227, 112),
    Denied("clock_adjtime", 305, 266),
    Denied("adjtimex", 159, 171),
    Denied("sethostname", 170, 161),
    Denied("setdomainname", 171, 162),
    Denied("syslog", 103, 116),
    Denied("vhangup", 153, 58),
    Denied("iopl", 172, None),
    Denied("ioperm", 173, None),
)
