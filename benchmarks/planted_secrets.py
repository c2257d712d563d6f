"""Made-up secrets of known shapes, and the places in which agents meet secrets.

The shapes of keys are facts from the rules that gitleaks publishes (``config/gitleaks.toml``) and
from the services' documentation. Each is a prefix with a random text of an alphabet. The secrets
are put together at run time, so that no scanner of repositories takes them for real ones.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from urllib.parse import quote

__all__ = ["KEY_SHAPES", "NAMED_PLACES", "PROSE_PLACES", "VALUE_SHAPES", "key", "value"]

_ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "w": string.ascii_letters + string.digits + "-_",
    "b": string.ascii_letters + string.digits + "+/",
    "x": string.digits + "abcdef",
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "A": string.ascii_letters,
    "d": string.digits,
}

_KEYS = """
A3-{u6}-{u11}-{u5}-{u5}-{u5}    ops_ey{a300}    p8e-{l32}    AGE-SECRET-KEY-1{u58}
pat{a14}.{x64}    LTAI{l20}    sk-ant-api03-{w93}AA    sk-ant-admin01-{w93}AA    AKCp{a69}
cmVmd{a59}    ATATT3{w186}    AKIA{u16}    ASIA{u16}    ABSK{b120}    {a3}8Q~{a34}
sc_{l12}.{l5}.acc_{l20}.{a60}    4b1d{a38}    CLOJARS_{l60}    v1.0-{x24}-{x146}    dapi{x32}
dnkey-{l26}-{l52}    doo_v1_{x64}    dop_v1_{x64}    dor_v1_{x64}    sl.{a135}    dp.pt.{l43}
duffel_live_{l43}    dt0c01.{u24}.{u64}    EZAK{a54}    EZTK{a54}    EAAC{a110}    fo1_{w43}
FLWSECK_TEST-{x32}-X    fm2_{b120}    fio-u-{l64}    AIza{w35}    ghp_{a36}    gho_{a36}
ghu_{a36}    ghs_{a36}    ghr_{a36}    github_pat_{a82}    glcbt-{a5}_{a20}    gldt-{a20}
glffct-{a20}    glft-{a20}    glimt-{a25}    glagent-{a50}    gloas-{a64}    glpat-{a20}
glptt-{x40}    GR1348941{a20}    glrt-{a20}    glsoat-{a20}    eyJrIjoi{a80}    glc_{a60}
glsa_{a32}_{x8}    pat.{a22}.{a24}.{a20}    {l14}.atlasv1.{l64}    HRKU-AA{a58}    hf_{A34}
api_org_{A34}    ico-{a32}    s-s4t2ud-{x64}    eyJ{a20}.eyJ{a40}.{w43}    lin_api_{l40}
{x32}-us12    key-{x32}    pubkey-{x32}    {a6}_{a29}_mmk    NRAK-{u27}    NRII-{l32}
ntn_{d11}{a35}    npm_{a36}    API-{u26}    sk-proj-{w74}T3BlbkFJ{w74}    sk-{a20}T3BlbkFJ{a20}
sha256~{w43}    pplx-{a48}    access-sandbox-{x8}-{x4}-{x4}-{x4}-{x12}    pscale_tkn_{a43}
pscale_oauth_{a43}    pscale_pw_{a43}    PMAK-{x24}-{x34}    pnu_{a36}    pul-{x40}
pypi-AgEIcHlwaS5vcmc{w80}    rdme_{l70}    rubygems_{x48}    tk-us-{w48}    SG.{w22}.{w43}
xkeysib-{x64}-{a16}    sntrys_eyJpYXQiO{a100}LCJyZWdpb25fdXJs{a60}
sntryu_{x64}    sm_aat_{a16}    shippo_live_{x40}
shpat_{x32}    shpca_{x32}    shppa_{x32}    shpss_{x32}    xapp-1-{u11}-{d12}-{x64}
xoxb-{d12}-{d12}-{a24}    xoxp-{d12}-{d12}-{d12}-{x32}    xoxe-1-{u146}
xoxs-{d10}-{d10}-{d10}-{x10}    xoxa-2-{a40}
https://hooks.slack.com/services/T{u8}/B{u10}/{a24}    sgp_{x40}    sq0atp-{w22}    EAAA{w60}
sk_live_{a24}    rk_live_{a24}    whsec_{a32}    {d9}:AA{w33}    SK{x32}    tfp_{a59}
hvs.{w95}    hvb.{w140}    t1.{a20}.{w86}    AQVN{w36}    gsk_{a52}    xai-{a80}    tvly-{a32}
nvapi-{w64}    r8_{a37}    lsv2_pt_{x32}_{x10}    sk-or-v1-{x64}    sk-lf-{x8}-{x4}-{x4}-{x4}-{x12}
dckr_pat_{w27}    e2b_{x40}    jina_{a60}    GOCSPX-{w28}    ya29.{w120}
ctx7sk-{x8}-{x4}-{x4}-{x12}
"""
KEY_SHAPES = tuple(_KEYS.split())
"""Keys of known forms. ``{a20}`` stands for 20 random letters and digits, and so on."""

_VALUES = "{a12} {a20} {a40} {x32} {x40} {b40} {l24} {A4}{d3}!{a6} {a8}#{a6} {w32}"
VALUE_SHAPES = tuple(_VALUES.split())
"""Passwords, keys and tokens that only their names give away."""

_PROSE = """
use {} please
It is {}.
The key ({}) was revoked yesterday
`{}`
I found these: {}, and nothing else
export it as <{}>
2026-11-25T10:00:01Z ERROR auth failed for {} after 3 attempts
"{}"
['{}', 2]
| key | {} |
Error: 401 Incorrect API key provided: {}. You can find yours at https://example.com
git clone https://{}@git.example.com/a/b.git
https://api.example.com/v1/{}/items
--{}--
"""
PROSE_PLACES = tuple(_PROSE.strip().splitlines())
"""Places without a name, in which a known form must be recognised."""

NAMED_PLACES: list[str | Callable[[str], str]] = [
    # environments and settings
    *("OPENAI_API_KEY={}", "export STRIPE_SECRET_KEY='{}'", "DB_PASSWORD={}\nPORT=3\n"),
    *("PGPASSWORD={} psql -h db -U ann", "SSHPASS={} sshpass -e ssh host", "MYSQL_PWD={} mysql"),
    *("set GITHUB_TOKEN={}\r\n", '$env:API_KEY = "{}"', "ENV API_TOKEN {}", "ENV API_TOKEN={}"),
    *("setenv ACCESS_TOKEN {}", "API_KEY_PROD={}", "DB_PASSWORD_OLD={}", "api_key_2: {}"),
    *("[db]\npassword = {}\n", 'api_key = "{}"\n', "spring.datasource.password={}"),
    *("//registry.npmjs.org/:_authToken={}", "client_secret: {}", "TOKEN_GITHUB={}"),
    # YAML, Kubernetes, Terraform
    *("env:\n  - name: DB_PASSWORD\n    value: {}\n", 'env:\n- name: API_KEY\n  value: "{}"\n'),
    *("users:\n- name: ann\n  user:\n    client-key-data: {}\n", "password: |\n  {}\nuser: ann\n"),
    *("stringData:\n  password: {}\n", "    token: '{}'\n", "secret_key_base: {}\n"),
    'variable "db_password" {{\n  type = string\n  default = "{}"\n}}',
    'resource "x" "y" {{\n  admin_password = "{}"\n}}',
    # code
    *('os.environ["API_KEY"] = "{}"', "config['password'] = '{}'", 'api_key="{}",'),
    *('password: str = "{}"', "const apiKey: string = '{}';", 'String dbPassword = "{}";'),
    *('os.environ.setdefault("DB_PASSWORD", "{}")', 'setenv("API_TOKEN", "{}", 1);'),
    *('os.getenv("API_KEY", "{}")', "process.env.AUTH_TOKEN = '{}'", ":password => '{}',"),
    *('apiKey := "{}"', 'SecretStr("x"); token = SecretStr("{}")', 'headers["X-Api-Key"] = "{}"'),
    *('{{"Authorization": "Bearer {}"}}', "client = Client(access_token='{}', timeout=3)"),
    *("TypeError: f(password='{}', user='ann')", "{{'PATH': '/bin', 'DB_PASS': '{}'}}"),
    '$pw = ConvertTo-SecureString "x"; $password = ConvertTo-SecureString "{}" -AsPlainText',
    # commands
    *("curl -u ann:{} https://host", "curl -H 'X-Api-Key: {}' https://host"),
    "mysql -u ann -p{} db",
    *("curl -H 'Authorization: token {}' https://host", "sshpass -p {} ssh ann@host"),
    *("sshpass -p '{}' ssh ann@host", "docker login -u ann -p {} registry", "redis-cli -a {} ping"),
    *("docker login --password {} registry", "x --api-key={} y", "x --token {} y"),
    *("helm registry login -u ann -p {} host", "openssl rsa -passin pass:{} -in k"),
    "unzip -P {} a.zip",
    *("aws configure set aws_secret_access_key {}", "docker run -e API_KEY={} image"),
    *("java -Djavax.net.ssl.keyStorePassword={} -jar a.jar", "keytool -storepass {} -list"),
    "sqlcmd -S host -U ann -P {} -Q x",
    "kubectl create secret generic x --from-literal=password={}",
    '["sshpass", "-p", "{}", "ssh", "host"]',
    '["x", "--password", "{}"]',
    # files of passwords
    *("machine host login ann password {}", "machine host\n  login ann\n  password {}\n"),
    *("db.example.com:5432:shop:ann:{}\n", "host=db user=ann password={} dbname=shop"),
    *("Server=db;User Id=a;Password={};Port=3", "Endpoint=sb://x/;SharedAccessKey={};EntityPath=y"),
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
    # addresses
    *(
        "postgres://ann:{}@host:5432/db",
        "https://host/p?api_key={}&page=2",
        "https://h/#access_token={}",
    ),
    *("redis://:{}@host:6379/0", "https://host/p?x=1&sig={}", "amqp://ann:{}@mq/v"),
    # JSON, XML, forms, logs
    *('{{"password": "{}"}}', '{{"user": {{"apiKey": "{}"}}}}'),
    '{{"name": "API_KEY", "value": "{}"}}',
    *('{{"\\u0070assword": "{}"}}', '{{"url": "https://h/p?a=1\\u0026token={}"}}'),
    '["x-api-key", "{}"]',
    *('[{{"value": "{}", "name": "DB_PASSWORD"}}]', '{{"auths": {{"r": {{"auth": "{}"}}}}}}'),
    *("<password>{}</password>", '<add key="ApiKey" value="{}"/>', '<x api_key="{}"/>'),
    *("> Authorization: Bearer {}", "> Cookie: session={}", "< set-cookie: sid={}; Path=/"),
    *("My API key is: {}, thanks", "the password is {}", "password for the database was {}"),
    *("&quot;password&quot;:&quot;{}&quot;", "login ok, token={} ttl=300", "secret: {}"),
    lambda secret: json.dumps({"arguments": json.dumps({"password": secret})}),
    lambda secret: json.dumps({"content": f"DB_PASSWORD={secret}\nPORT=3"}),
    lambda secret: json.dumps(json.dumps({"content": f"config['token'] = '{secret}'"})),
    lambda secret: f"https://host/p?access_token={quote(secret, safe='')}",
    lambda secret: "Authorization: Basic " + base64.b64encode(f"a:{secret}".encode()).decode(),
]
"""Places in which a name says that the value is a secret."""


def key(shape: str, chance: random.Random) -> str:
    """Return a random secret of a shape."""
    parts = shape.split("{")
    out = [parts[0]]
    for part in parts[1:]:
        count, _, rest = part.partition("}")
        out += [*chance.choices(_ALPHABETS[count[0]], k=int(count[1:])), rest]
    return "".join(out)


def value(shape: str, chance: random.Random) -> str:
    """Return a random password or key of a shape, with at least one digit."""
    secret = key(shape, chance)
    while not any(map(str.isdigit, secret)) or secret.isdigit():
        secret = key(shape, chance)
    return secret
