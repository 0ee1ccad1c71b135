"""The dashboard in Chromium: every page, nothing of others, keyboard alone, light, dark and narrow."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import SCREENSHOTS
from tests.browser.network import HOSTILE

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Network, Pages

#: The checker of accessibility, which the package has as a file.
AXE = files("axe_playwright_python").joinpath("axe.min.js")
#: Time for a test that shows all pages, on a busy machine (seconds).
ALL_PAGES_S = 400
#: The pages, and a column of their first table with the field that it shows.
TABLES = {
    "overview": None,
    "clusters": ("cluster", "name"),
    "cluster/quotes": ("address", "address"),
    "topics": ("pattern", "pattern"),
    "topic/news.%3E": ("address", "address"),
    "nodes": ("address", "address"),
    "node/door": ("figure", "name"),
    "links": None,
    "ring": ("address", "address"),
    "clouds": ("cloud", "cloud"),
    "events": None,
    "findings": None,
    "door": None,
}


def go(page: Page, network: Network, name: str) -> None:
    """Show a page, and wait for its first answer."""
    page.goto(f"{network.url}/#/{path_of(page, name)}")
    page.wait_for_selector("#command code", state="attached")
    page.wait_for_selector("main table, main .fine, main .check", state="attached")


def path_of(page: Page, name: str) -> str:
    """Return the path of a page, with the id of a node in place of its label."""
    kind, _mark, label = name.partition("/")
    if kind != "node":
        return name
    return "node/" + str(next(item["id"] for item in answer(page, "nodes")["items"] if item["name"] == label))


def column(page: Page, title: str) -> list[str]:
    """Return the texts of a column of the first table."""
    texts: list[str] = page.evaluate(
        """title => {
            const table = document.querySelector('main table');
            const index = [...table.querySelectorAll('thead th')].findIndex(head => head.textContent.startsWith(title));
            return [...table.querySelectorAll('tbody tr')].map(row => row.children[index].textContent);
        }""",
        title,
    )
    return texts


def answer(page: Page, name: str) -> Any:
    """Return the struct of a page, asked in the browser with its cookie."""
    return page.evaluate("name => fetch('v1/pages/' + encodeURIComponent(name)).then(answer => answer.json())", name)


def answer_of(page: Page, name: str) -> Any:
    """Return the struct of a page, by its name among `TABLES`."""
    return answer(page, path_of(page, name).replace("/", ":").replace("%3E", ">"))


@pytest.mark.parametrize("name", TABLES)
def test_each_page_shows_what_the_door_says(pages: Pages, network: Network, name: str) -> None:
    page = pages.open()
    go(page, network, name)
    shown = TABLES[name]
    if shown is not None:
        title, field = shown
        page.wait_for_selector("main table tbody tr", state="attached")
        said = answer_of(page, name)
        assert sorted(column(page, title)) == sorted(item[field] for item in said["items"])
    assert page.locator("nav a[aria-current=page]").count() == 1
    page.context.close()
    assert pages.faults == []


@pytest.mark.parametrize("name", TABLES)
def test_each_page_names_the_commands_that_act(pages: Pages, network: Network, name: str) -> None:
    page = pages.open()
    go(page, network, name)
    head = answer_of(page, name)["head"]
    assert page.locator("#command code").all_inner_texts() == [head["command"], *(each["command"] for each in head["actions"])]
    assert page.locator("main form, main input:not([type=search])").count() == 0, "the dashboard is read-only"
    page.context.close()


def test_the_ring_has_each_node_and_leads_to_its_page(pages: Pages, network: Network) -> None:
    page = pages.open()
    go(page, network, "ring")
    page.wait_for_selector(".ring-links[d^=M]", state="attached")
    said = answer(page, "ring")
    titles = page.locator(".ring-node title").all_text_contents()
    assert sorted(title.partition(", ")[0] for title in titles) == sorted(
        item["name"] or item["id"][:8] for item in said["items"]
    )
    assert {"door", "door-histories"} <= {item["name"] for item in said["items"]}, "also the two nodes of the door itself"
    chords = page.locator(".ring-links").get_attribute("d") or ""
    assert chords.count("M") == len(said["links"]) == said["links_total"]
    dot = page.locator(".ring-node", has_text="beta")
    dot.hover()
    page.locator(".ring-detail", has_text="beta, 127.0.0.1").wait_for()
    assert page.locator(".ring-near").get_attribute("d")
    dot.click()
    page.locator("h1", has_text="Node beta (").wait_for()
    page.context.close()
    assert pages.faults == []


def test_the_door_tells_of_its_clients_and_refusals(pages: Pages, network: Network) -> None:
    page = pages.open()
    go(page, network, "door")
    for text in ("ann", "events", "forbidden", "news.>"):
        page.locator("main table td", has_text=text).first.wait_for()
    said = answer(page, "door")
    assert [client["subject"] for client in said["clients"]] == ["ann"]
    assert [(other["kind"], other["name"], other["is_draining"]) for other in said["doors"]] == [("web", "alpha", False)]
    page.get_by_role("cell", name=said["doors"][0]["address"]).wait_for()
    assert page.locator(".tile", has_text=f"event streams{said['door']['streams']}").count() == 1
    page.context.close()
    assert pages.faults == []


def test_messages_of_a_topic_come_if_the_token_allows_it(pages: Pages, network: Network) -> None:
    page = pages.open()
    go(page, network, "topic/news.%3E")
    page.click("text=Follow")
    page.get_by_text("No rule allows this.").wait_for()
    page.context.close()
    page = pages.open_signed_out()
    page.context.clear_cookies()
    page.goto(network.url)
    page.fill("#token", network.token)
    page.press("#token", "Enter")
    page.wait_for_selector(".tile")
    go(page, network, "topic/news.%3E")
    page.click("text=Follow")
    page.get_by_role("cell", name="news.a").first.wait_for()
    assert page.get_by_role("cell", name=HOSTILE).count() > 0, "a payload is text"
    streams = answer(page, "door")["door"]["streams"]
    go(page, network, "topics")
    page.wait_for_function(
        "before => fetch('v1/pages/door').then(answer => answer.json()).then(page => page.door.streams < before)", arg=streams
    )
    page.context.close()
    assert [fault for fault in pages.faults if "403" not in fault and "401" not in fault] == []


def examine(page: Page, network: Network) -> None:
    """Let the door examine the network, unless it has."""
    go(page, network, "findings")
    page.wait_for_function("() => document.querySelector('.examine p').textContent")
    if not page.locator(".check").count():
        page.locator("button.act").click()
    page.locator(".examine p", has_text="Examined at").wait_for(timeout=60_000)


def test_a_viewer_lets_the_door_examine_the_network(pages: Pages, network: Network) -> None:
    page = pages.open()
    go(page, network, "findings")
    assert answer(page, "findings")["state"] == "none", "nothing is examined before a viewer asks"
    examine(page, network)
    said = answer(page, "findings")
    assert page.locator(".check").count() == len(said["items"]) == said["steps"]
    found = {(item["check"], item["cluster"]): item["status"] for item in said["items"]}
    assert found["ring", ""] == "ok"
    assert found["clouds", ""] == "FAULT", "a cloud is not reached"
    assert found["cluster", "nobody"] == "FAULT"
    assert not [item for item in said["items"] if "check itself failed" in item["cause"]]
    assert page.locator(".check").first.get_attribute("class") == "check is-bad", "faults come first"
    page.wait_for_function(
        """() => fetch('v1/pages/nodes').then(answer => answer.json())
            .then(page => page.items.every(item => item.name !== 'door-doctor'))"""
    )
    refused = page.evaluate(
        "fetch('v1/findings', {method: 'POST', headers: {'Iris-Request': '1'}}).then(answer => answer.status)"
    )
    assert refused == 429, "the next one comes later"
    page.context.close()
    assert [fault for fault in pages.faults if "429" not in fault] == []


def test_totals_are_those_of_the_same_second(pages: Pages, network: Network) -> None:
    page = pages.open()
    go(page, network, "overview")
    told = page.evaluate(
        """() => new Promise(resolve => {
            const source = new EventSource('v1/watch?page=overview');
            source.addEventListener('page', event => {
                const content = JSON.parse(event.data);
                source.close();
                resolve(content.totals);
            });
        })"""
    )
    nodes = round(told["nodes"]["total"])
    page.locator(".tile", has_text=f"nodes{nodes}").wait_for()
    page.context.close()


def test_names_of_the_network_are_text(pages: Pages, network: Network) -> None:
    page = pages.open()
    for name in ("overview", "clusters", "nodes", "cluster/quotes"):
        go(page, network, name)
        page.get_by_text(HOSTILE).first.wait_for(state="attached")
    assert page.locator("main img").count() == 0
    page.context.close()
    assert pages.faults == []


def test_the_keyboard_alone_is_enough(pages: Pages, network: Network) -> None:
    page = pages.open()
    go(page, network, "overview")
    page.keyboard.press("Tab")
    for _ in range(30):
        if page.evaluate("document.activeElement.textContent") == "Clusters":
            break
        page.keyboard.press("Shift+Tab")
    else:
        page.locator("nav a", has_text="Clusters").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text('Clusters')")
    page.wait_for_selector("main table tbody tr")
    page.locator("main table thead button").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("main table thead th").first.get_attribute("aria-sort") in ("ascending", "descending")
    page.locator("main table tbody a", has_text="quotes").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text('Cluster quotes')")
    page.context.close()
    assert pages.faults == []


@pytest.mark.timeout(ALL_PAGES_S)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360)])
def test_pages_fit_and_are_readable(pages: Pages, network: Network, scheme: str, width: int) -> None:
    page = pages.open(color_scheme=scheme, viewport={"width": width, "height": 900})
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    examine(page, network)
    for name in TABLES:
        go(page, network, name)
        page.wait_for_timeout(1200)  # for the picture alone: two readings
        page.screenshot(path=SCREENSHOTS / f"{name.replace('/', '-')}-{scheme}-{width}.png", full_page=True)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, name
    page.context.close()
    assert pages.faults == []


@pytest.mark.timeout(ALL_PAGES_S)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(pages: Pages, network: Network, scheme: str) -> None:
    # The policy of the page lets no foreign script in, so the checker comes by the protocol of the tools.
    page = pages.open(color_scheme=scheme, bypass_csp=True)
    for name in TABLES:
        go(page, network, name)
        page.evaluate(AXE.read_text() + ";0")
        found = page.evaluate("axe.run().then(result => result.violations)")
        serious = [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]
        assert serious == [], name
    page.context.close()


def test_a_wrong_token_is_told_and_a_code_works_once(pages: Pages, network: Network) -> None:
    page = pages.open_signed_out()
    page.context.clear_cookies()
    page.goto(f"{network.url}/#code=wrong")
    page.wait_for_selector("text=This link was used")
    page.fill("#token", "no-token")
    page.click("text=Sign in >> nth=-1")
    page.wait_for_selector("text=This is no token of this door.")
    page.context.close()


def test_signing_out_ends_the_session(pages: Pages, network: Network) -> None:
    page = pages.open_signed_out()
    page.context.clear_cookies()
    page.goto(f"{network.url}/#code={network.codes.pop()}")
    page.wait_for_selector(".tile")
    page.click("#leave")
    page.wait_for_selector("form.sign-in")
    page.reload()
    page.wait_for_selector("form.sign-in")
    page.context.close()


def test_many_updates_keep_the_memory_and_the_elements(pages: Pages, network: Network) -> None:
    page = pages.open()
    go(page, network, "overview")
    page.wait_for_selector("main table tbody tr")
    page.evaluate(
        """async () => {
            const {makePage} = await import('./static/pages.js');
            const content = await (await fetch('v1/pages/overview')).json();
            window.repeat = count => {
                const made = makePage('overview', '');
                made.show(document.getElementById('main'));
                for (let index = 0; index < count; index += 1) { content.head.unix_s += 1; made.update(content); }
                return document.querySelectorAll('*').length;
            };
        }"""
    )
    before = page.evaluate("repeat(1000)")
    assert page.evaluate("repeat(2000)") == before
    page.context.close()
    assert pages.faults == []
