"""What the processes of a worker may know: a list of names, and nothing else, reaches any child."""

import ctypes
import re
from collections.abc import Mapping, MutableMapping
from typing import Final

ALLOWED: Final = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TERM|NO_COLOR|VIRTUAL_ENV"
    r"|PYTHON\w+|LD_LIBRARY_PATH|LD_PRELOAD|MALLOC_\w+"
    r"|OMP_\w+|MKL_\w+|OPENBLAS_\w+|KMP_\w+"
    r"|CUDA_\w+|NVIDIA_\w+|NCCL_\w+|GLOO_\w+|TP_\w+|ROCR_\w+|HIP_\w+|HSA_\w+|PYTORCH_\w+"
    r"|TORCH\w*|MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?i:https?_proxy|no_proxy|all_proxy)"
    r"|AWS_PROFILE|AWS_ROLE_ARN|AWS_WEB_IDENTITY_TOKEN_FILE|AWS_CONFIG_FILE|AWS_SHARED_CREDENTIALS_FILE"
    r"|AWS_CA_BUNDLE|GOOGLE_APPLICATION_CREDENTIALS"
)
"""Names that say where things are. Secrets go to the children of one store, by their standard input."""

_S3_OPTIONS: Final = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token",
    "AWS_ENDPOINT_URL": "endpoint_url",
}
_PR_SET_DUMPABLE: Final = 4  # linux/prctl.h


def s3_options(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the S3 credentials of an environment as options of a store."""
    options: dict[str, object] = {
        option: environment[name] for name, option in _S3_OPTIONS.items() if environment.get(name)
    }
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    return {**options, "client_kwargs": {"region_name": region}} if region else options


def forget_secrets(environment: MutableMapping[str, str]) -> None:
    """Drop every name that is not allowed; nothing started from now on inherits one."""
    for name in [name for name in environment if not ALLOWED.fullmatch(name)]:
        del environment[name]


def hide_process() -> None:
    """Keep other processes of this user from reading this one's memory and first environment.

    A child that hostile bytes have taken over runs as the same user: without this it could read
    the token in `/proc/PID/environ` of its parent. Children start visible again (execve).
    """
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):  # not Linux
        return
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
