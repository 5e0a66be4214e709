"""No request leaves the machine: the page's policy refuses it, and no page tries."""

PAGES = ["start", "overview", "tokens", "embedding", "attention", "heads", "output", "lessons"]
BLOCKED = """() => new Promise((done) => {
  document.addEventListener('securitypolicyviolation',
    (event) => done([event.effectiveDirective, event.blockedURI]), { once: true });
  fetch('http://192.0.2.1/').catch(() => {});
})"""


def test_no_page_requests_another_host(visit, ids):
    visited = visit()
    for name in PAGES:
        visited.open(f"#/{name}?m={ids['spelling']}&s=attention")
    assert visited.foreign_requests == []


def test_requests_to_other_hosts_are_refused(visit):
    page = visit(clean=False).open("#/start")  # the browser logs the violation
    assert page.evaluate(BLOCKED) == ["connect-src", "http://192.0.2.1/"]
