"""What is masked, and what is evidence and stays."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from distdoctor.report.mask import mask_text
from report.generated import texts

SECRETS = [
    ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 x", "WANDB_API_KEY=[secret] x"),
    ("python train.py --hf-token abc --next 3", "python train.py --hf-token [secret] --next 3"),
    ("--hf-token=abc,", "--hf-token=[secret],"),
    ("['--hf-token', 'abc', '--port', '1']", "['--hf-token', '[secret]', '--port', '1']"),
    ('--password "my pass word" next', '--password "[secret]" next'),
    ("Authorization: Bearer abc.def", "Authorization: Bearer [secret]"),
    ('-H "Authorization: Basic dXNlcjpw" http://x/y', '-H "Authorization: Basic [secret]" http://x/y'),
    ("Cookie: a=b; c=d", "Cookie: [secret]"),
    ('{"token": "abc", "port": 29500}', '{"token": "[secret]", "port": 29500}'),
    ('{\\"token\\": \\"abc\\", \\"x\\": 1}', '{\\"token\\": \\"[secret]\\", \\"x\\": 1}'),
    ("{'HF_TOKEN': 'abc'}", "{'HF_TOKEN': '[secret]'}"),
    ("password: hunter2", "password: [secret]"),
    ("MYSQL_PWD=abc", "MYSQL_PWD=[secret]"),
    ("PGPASSWORD=abc psql", "PGPASSWORD=[secret] psql"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "aws_secret_access_key = [secret]"),
    ("//registry.example/:_authToken=abc123", "//registry.example/:_authToken=[secret]"),
    ("Server=x;Password=abc;", "Server=x;Password=[secret];"),
    ("AccountKey=abc==", "AccountKey=[secret]"),
    ('[{"name": "HF_TOKEN", "value": "abc"}]', '[{"name": "HF_TOKEN", "value": "[secret]"}]'),
    ("- name: DB_PASSWORD\n  value: sup3r", "- name: DB_PASSWORD\n  value: [secret]"),
    ("HF_TOKEN    hf_abcDEF123456", "HF_TOKEN    [secret]"),
    (r"HF_TOKEN\x1b[0m=\x1b[33mabc123\x1b[0m next", r"HF_TOKEN\x1b[0m=\x1b[33m[secret] next"),
    ("postgres://bob:pa/ss@db.example.com:5432/x", "postgres://[secret]@db.example.com:5432/x"),
    ("redis://:pw@10.0.0.1:6379/0", "redis://[secret]@10.0.0.1:6379/0"),
    ("https://ghp_abcdefghijklmnop1234@github.com/x", "https://[secret]@github.com/x"),
    ("hf_abcdefGHIJ0123456789", "[secret]"),
    ("gho_0123456789abcdefABCD", "[secret]"),
    ("github_pat_11ABCDEFG0123456789_abc", "[secret]"),
    ("sk-proj-abcdef1234567890", "[secret]"),
    ("AKIAIOSFODNN7EXAMPLE and ASIAIOSFODNN7EXAMPLE", "[secret] and [secret]"),
    ("xoxb-123456789-abcdef", "[secret]"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "[secret]"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_def ok", "[secret] ok"),
    ("a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nb", "a\n[secret]\nb"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc cut off", "[secret]"),
    ("https://acc.blob.example/c?sv=2020&sig=abcdefghijkl%2Bmno%3D&se=1", "https://acc.blob.example/c?sv=2020&sig=[secret]&se=1"),
    ("curl -u alice:pw http://x", "curl -u [secret] http://x"),
    ("machine x login y password z", "machine x login y password [secret]"),
    ("mail bob.smith+x@mail.example.com now", "mail [email] now"),
    ("/home/alice/x.py and /Users/bob/Library", "/home/[user]/x.py and /Users/[user]/Library"),
    ("/nfs/home/carol/data, ~dave/run", "/nfs/home/[user]/data, ~[user]/run"),
    (r"C:\Users\bob\x", r"C:\Users\[user]\x"),
]  # fmt: skip

EVIDENCE = [
    "GPU-3b5a1f0e-1111-2222-3333-444455556666 at 0000:3B:00.0",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "SLURM_JOB_ID=123 NCCL_ASYNC_ERROR_HANDLING=1 TORCH_NCCL_BLOCKING_WAIT=0",
    "driver 570.86.15, NCCL 2.28.9+cuda12.8",
    "1234 tokens/s, token/s=5, num_tokens=4096 max_tokens: 8192 tokens=12",
    'eos_token="</s>" eos_token_id=2 pad_token=<pad> special_tokens_map.json',
    "TOKENIZERS_PARALLELISM=false --tokenizer-path /data/llama",
    "Unexpected token: '}' at line 5; unexpected token: foo",
    "password is wrong; token expired; authentication failed",
    "XDG_SESSION_ID=3 SSH_AUTH_SOCK=/tmp/ssh-x/agent AuthType=auth/munge",
    "export HF_TOKEN=$HF_TOKEN; run --token $HF_TOKEN",
    "store key: default_pg/0//cpu//0/0 not set; rdzv session",
    "private memory: 512 MiB Private_Dirty:  1234 kB",
    "tcp://10.0.0.1:29500 and http://x:8080/a@b",
    "user@1000.service nvidia-fabricmanager@0.service memcpy@GLIBC_2.14 root@host.example.com",
    "PWD=/data/x /root/x /homework/x ~/x",
    "task-list-1234567890123 disk-abc1234567890123 sk-learn-without-digits",
    "author: Bob, key: value, cookie jar",
    "bw_secret_sauce is a name",
]


@pytest.mark.parametrize(("text", "masked"), SECRETS)
def test_secrets_are_masked_and_their_surroundings_stay(text: str, masked: str) -> None:
    result, count = mask_text(text)
    assert result == masked
    assert count >= 1
    assert mask_text(masked) == (masked, 0)


@pytest.mark.parametrize("text", EVIDENCE)
def test_ordinary_evidence_is_left_alone(text: str) -> None:
    assert mask_text(text) == (text, 0)


@settings(max_examples=500, deadline=None)
@given(texts)
@pytest.mark.once
def test_masking_again_masks_little_more(text: str) -> None:
    """Masking may bring two halves together; from the fourth look on nothing changes (`seal` looks so often)."""
    for _ in range(4):
        text, _ = mask_text(text)
    assert mask_text(text)[0] == text
