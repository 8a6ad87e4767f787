"""A page that a sandbox serves at a forwarded port, in the browser that is signed in to the dashboard.

Ports of 127.0.0.1 are one site to a browser: SameSite does not part them, and cookies know no ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.http.serving import KEY, Serving

import belljar
import belljar.sync

from .conftest import live, until
from .test_real_service import ASKED, begin, wait_for_approval

pytestmark = pytest.mark.engine

PAGE = """<!doctype html><meta charset=utf-8><title>app</title><script type=module>
const server = 'SERVER', approval = 'APPROVAL';
const asked = {credentials: 'include'};
const decision = JSON.stringify({decision: 'allow', scope: 'once', token: 'TOKEN'});
const found = {};
async function attempt(name, act) {
  try { found[name] = String(await act()); } catch (error) { found[name] = 'refused'; }
}
const text = async (answer) => (await answer).text();
const opened = (made) => new Promise((good, bad) => {
  made.onopen = () => good('open'); made.onmessage = (event) => good(event.data); made.onerror = () => bad();
});
const framed = (attributes, fields) => new Promise((done) => {
  const frame = document.createElement('iframe');
  frame.name = 'frame' + Math.random();
  document.body.append(frame);
  const form = Object.assign(document.createElement('form'), {target: frame.name, ...attributes});
  for (const [name, value] of Object.entries(fields)) {
    const input = document.createElement('input');
    input.name = name; input.value = value; form.append(input);
  }
  document.body.append(form);
  frame.onload = () => { try { done(frame.contentDocument ? 'own' : 'refused'); } catch { done('refused'); } };
  form.submit();
});
await attempt('reads', () => text(fetch(server + '/v1/approvals', asked)));
await attempt('reads the page', () => text(fetch(server + '/', asked)));
await attempt('decides', () => text(fetch(server + '/v1/approvals/' + approval, {...asked, method: 'POST',
  headers: {'Content-Type': 'application/json', 'Belljar-Request': '1'}, body: decision})));
await attempt('decides without asking first', async () => (await fetch(server + '/v1/approvals/' + approval, {...asked,
  mode: 'no-cors', method: 'POST', headers: {'Content-Type': 'text/plain'}, body: decision})).type);
await attempt('listens', () => opened(new EventSource(server + '/v1/events?topics=approvals', {withCredentials: true})));
await attempt('attaches', () => opened(new WebSocket(server.replace('http', 'ws') + 'ATTACH')));
await attempt('signs out', () => framed({action: server + '/logout', method: 'post'}, {}));
await attempt('signs in', () => framed({action: server + '/login', method: 'post'}, {key: 'bj_x', next: '/'}));
window.found = found;
</script><body>"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Serves a page from a sandbox, and gives its address here."""
    with belljar.sync.Session(workspace=tmp_path) as box:

        def serves(page: str) -> str:
            (tmp_path / "index.html").write_text(page)
            box.start("exec python3 -m http.server 8000 --bind 127.0.0.1")
            box.run(
                "until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.1; done"
            )
            return box.forward(8000)

        yield serves


def test_a_page_at_a_forwarded_port_cannot_use_the_sign_in(
    server: Serving,
    open_page: Callable[..., Any],
    watched: Any,
    app: Callable[[str], str],
) -> None:
    watched.expected = ("",)  # a hostile page may complain
    session = server.session(name="agent-forwarded")
    command = begin(server, session, ASKED)
    approval = wait_for_approval(server, session)
    token = server.client.get(f"/v1/approvals/{approval}").json()["token"]
    live(page := open_page(server.url, key=KEY))
    hostile = (
        PAGE.replace("SERVER", server.url)
        .replace("APPROVAL", approval)
        .replace("TOKEN", token)
        .replace("ATTACH", f"/v1/sessions/{session}/commands/{command['id']}/attach")
    )
    page.goto(app(hostile))
    until(page, "window.found !== undefined")
    found = page.evaluate("window.found")
    assert found.pop("decides without asking first") == "opaque"  # nobody can read it
    assert set(found.values()) == {"refused"}, found
    assert server.client.get(f"/v1/approvals/{approval}").json()["state"] == "waiting"
    page.goto(server.url)
    live(page).get_by_role("article", name="agent-forwarded").wait_for()
