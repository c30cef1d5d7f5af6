package query_test

import (
	"testing"

	"github.com/millrace/millrace/store/query"
)

// Values of different types are unequal; what is undefined is neither equal nor unequal
// to anything; and there is no order between types. A text of the meaning before goes
// on to mean what it meant.
func TestValuesOfDifferentTypesAreUnequal(t *testing.T) {
	item := []byte(`{"n":1,"s":"a","e":"\u0061","z":null,"b":true,"a":[1],"o":{"x":1}}`)
	for _, c := range []struct{ text, now, before string }{
		{`s != null`, "true", ""},
		{`null != s`, "true", ""},
		{`z != null`, "false", "false"},
		{`s = null`, "false", ""},
		{`n != "a"`, "true", ""},
		{`n = "a"`, "false", ""},
		{`e = "a"`, "true", "true"},
		{`a != "a"`, "true", ""},
		{`o = n`, "false", ""},
		{`o != a`, "true", ""},
		{`b != 1`, "true", ""},
		{`missing = null`, "", ""},
		{`missing != null`, "", ""},
		{`missing != "a"`, "", ""},
		{`missing != missing`, "", ""},
		{`s = undefined`, "", ""},
		{`n < "a"`, "", ""},
		{`s >= null`, "", ""},
		{`n BETWEEN "a" AND "b"`, "", ""},
		{`n IN ("a", null)`, "false", ""},
		{`n IN ("a", 1)`, "true", "true"},
		{`n IN ("a", undefined)`, "", ""},
		{`n IN (undefined, 1)`, "true", "true"},
		{`missing IN (1)`, "", ""},
		{`n NOT IN ("a")`, "true", ""},
		{`NOT (s = 1)`, "true", ""},
		{`s = 1 OR true`, "true", "true"},
		{`[1, "a"] = ["a", 1]`, "false", "false"},
		{`ARRAY_CONTAINS(a, "1")`, "false", "false"},
		{`n IN ("1", "2", "3", "4", "5", "6", "7", "8")`, "false", ""},
		{`n IN ("1", "2", "3", "4", "5", "6", "7", undefined)`, "", ""},
	} {
		for meaning, want := range map[query.Meaning]string{query.MeaningNow: c.now, query.MeaningTyped: c.before} {
			e, err := meaning.ParseExpr(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := e.Eval(item).Text(); got != want || e.True(item) != (want == "true") {
				t.Errorf("%s by meaning %d is %q, want %q", c.text, meaning, got, want)
			}
		}
	}
}

// What an index is built by, or a pipeline, is rebuilt where it could come to something
// else, and only there.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		text             string
		condition, value bool
	}{
		{`type = "product"`, false, true},
		{`type = "product" AND price > 5 AND n IN (1, 2)`, false, true},
		{`type = "product" OR NOT (stock <= 0)`, false, true},
		{`type != "product"`, true, true},
		{`NOT type = "product"`, true, true},
		{`NOT NOT type = "product"`, false, true},
		{`NOT type != "product"`, false, true},
		{`n NOT IN (1, 2)`, true, true},
		{`(n = 1) ?? true`, true, true},
		{`(n = 1) = false`, true, true},
		{`n = 1 ? a = 2 : b != 2`, true, true},
		{`price * quantity`, false, false},
		{`CONCAT(a, "-", LOWER(b))`, false, false},
		{`name LIKE "a%"`, false, false},
		{`name LIKE "a_b%"`, true, true},
		{`REGEXMATCH(name, "a+")`, true, true},
		{`ARRAY_CONTAINS(tags, {"id": 1})`, true, true},
		{`EXISTS(SELECT VALUE 1 FROM t IN tags)`, true, true},
	} {
		e, err := query.MeaningTyped.ParseExpr(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Turns(true); got != c.condition {
			t.Errorf("%s as a condition turns: %v", c.text, got)
		}
		if got := e.Turns(false); got != c.value {
			t.Errorf("%s as a value turns: %v", c.text, got)
		}
	}
}
