from harness import across, case, container, equal, refused


def filled():
    c = container()
    for i in range(30):
        c.create_item({"id": f"{i:02}", "pk": "abc"[i % 3], "n": i, "even": i % 2 == 0, "tags": [f"t{i % 4}"]})
    return c


def ask(c, text, *parameters, **options):
    names = [{"name": name, "value": value} for name, value in parameters]
    if "partition_key" not in options:
        options |= across
    return list(c.query_items(text, parameters=names or None, **options))


@case("queries")
def _():
    c = filled()
    equal([r["n"] for r in ask(c, "SELECT c.n FROM c WHERE c.n < @max ORDER BY c.n DESC", ("@max", 4))], [3, 2, 1, 0])
    equal(ask(c, "SELECT VALUE COUNT(1) FROM c"), [30])
    equal(ask(c, "SELECT VALUE SUM(c.n) FROM c WHERE c.even"), [210])
    equal(ask(c, "SELECT VALUE AVG(c.n) FROM c"), [14.5])
    equal(ask(c, "SELECT VALUE MAX(c.n) FROM c WHERE c.pk = 'a'"), [27])
    groups = ask(c, "SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk")
    equal(sorted((g["pk"], g["n"]) for g in groups), [("a", 10), ("b", 10), ("c", 10)])
    equal(sorted(ask(c, "SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags")), ["t0", "t1", "t2", "t3"])
    equal(ask(c, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 5 LIMIT 3"), [5, 6, 7])
    equal(ask(c, "SELECT TOP 2 VALUE c.n FROM c ORDER BY c.n"), [0, 1])
    equal(len(ask(c, "SELECT * FROM c", partition_key="a")), 10)
    equal(ask(c, "SELECT VALUE COUNT(1) FROM c", partition_key="b"), [10])
    refused(400, ask, c, "SELEC")


@case("pages of a query")
def _():
    c = filled()
    for text in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.n", "SELECT * FROM c WHERE c.n >= 0"]:
        pages = [list(p) for p in c.query_items(text, max_item_count=7, **across).by_page()]
        rows = [i["n"] for p in pages for i in p]
        equal(rows if "ORDER BY" in text else sorted(rows), list(range(30)), text)
        assert all(len(p) <= 7 for p in pages), f"{text}: {[len(p) for p in pages]}"
    pager = c.query_items("SELECT * FROM c", partition_key="a", max_item_count=4).by_page()
    first = [i["n"] for i in next(pager)]
    later = c.query_items("SELECT * FROM c", partition_key="a", max_item_count=4).by_page(pager.continuation_token)
    equal(sorted(first + [i["n"] for p in later for i in p]), list(range(0, 30, 3)))


@case("queries of a part")
def _():
    c = filled()
    seen = []
    for part in c.read_feed_ranges():
        seen += [i["n"] for i in c.query_items("SELECT * FROM c", feed_range=part)]
    equal(sorted(seen), list(range(30)))


@case("hierarchical keys")
def _():
    c = container(("/tenant", "/user"))
    for i in range(12):
        c.create_item({"id": str(i), "tenant": "ab"[i % 2], "user": f"u{i % 3}", "n": i})
    equal(c.read_item("4", ["a", "u1"])["n"], 4)
    equal(sorted(i["n"] for i in c.query_items("SELECT * FROM c", partition_key=["a"])), [0, 2, 4, 6, 8, 10])
    equal(sorted(i["n"] for i in c.query_items("SELECT * FROM c", partition_key=["a", "u0"])), [0, 6])
