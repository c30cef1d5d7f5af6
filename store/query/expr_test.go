package query_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/query"
)

const item = `{
  "id": "p1", "type": "product", "name": "Sock \u0022L\u0022", "é": "Zoë",
  "price": 27.12, "stock": 9007199254740993, "n": -2, "zero": 0,
  "active": true, "gone": false, "none": null,
  "tags": [{"id": "t1", "name": "New"}, {"id": "t2", "name": "Sale", "rank": 1.0}],
  "numbers": [3, 1, 2], "address": {"city": "Oslo", "in": 5, "c": {"d": 1}},
  "c": {"c": "self"}, "value": 7, "a b": 8, "index": 1, "key": "city"
}`

func TestEval(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		// Paths.
		{`id`, `"p1"`},
		{`c.id`, `"p1"`},
		{`item.address.city`, `"Oslo"`},
		{`root["address"]['city']`, `"Oslo"`},
		{`address.in`, `5`},
		{`c["a b"]`, `8`},
		{`c.c.c`, `"self"`},
		{`tags[1].name`, `"Sale"`},
		{`tags[index].name`, `"Sale"`},
		{`tags[2]`, ``},
		{`tags["1"]`, ``},
		{`address[key]`, `"Oslo"`},
		{`address[0]`, ``},
		{`missing.deeper`, ``},
		{`id.deeper`, ``},
		{`value`, `7`},
		{`é`, `"Zoë"`},
		{`none`, `null`},
		{`[{"x": [1, 2]}][0].x[1]`, `2`},
		{`tags[-1]`, ``},

		// Literals.
		{`"a\n\"\u00e9\ud83d\ude00'"`, `"a\n\"é😀'"`},
		{`'it\'s "x"'`, `"it's \"x\""`},
		{`1e3`, `1e3`},
		{`.5`, `0.5`},
		{`007`, `7`},
		{`null`, `null`},
		{`undefined`, ``},
		{`[1, missing, "x", [true]]`, `[1,"x",[true]]`},
		{`{a: id, "b": missing, c: {}}`, `{"a":"p1","c":{}}`},
		{`true -- a comment`, `true`},

		// Numbers are exact.
		{`stock = 9007199254740992`, `false`},
		{`stock = 9007199254740993`, `true`},
		{`stock + 1`, `9007199254740994`},
		{`0.1 + 0.2`, `0.3`},
		{`0.1 + 0.2 = 0.3`, `true`},
		{`price * 3`, `81.36`},
		{`price - 0.12`, `27`},
		{`1e400 + 1 > 1e400`, `true`},
		{`1e600 * 1e600 = 1e1200`, `true`},
		{`123456789012345678 * 123456789012345678`, `15241578753238836527968299765279684`},
		{`1e00000000000000000001 = 10`, `true`},
		{`1e300 + 1e-300`, `1e+300`},
		{`7 / 2`, `3.5`},
		{`6 / 2`, `3`},
		{`7 % 3`, `1`},
		{`-7 % 3`, `-1`},
		{`7.5 % 2`, `1.5`},
		{`1 / 0`, ``},
		{`1 / zero`, ``},
		{`1 % 0`, ``},
		{`-price`, `-27.12`},
		{`- -2`, `2`},
		{`+n`, `-2`},
		{`-"x"`, ``},
		{`+id`, ``},
		{`1 + "1"`, ``},
		{`1 + null`, ``},
		{`1 + missing`, ``},
		{`1 + 2 * 3`, `7`},
		{`(1 + 2) * 3`, `9`},
		{`10 - 2 - 3`, `5`},

		// Bits.
		{`6 & 3`, `2`},
		{`6 | 3`, `7`},
		{`6 ^ 3`, `5`},
		{`~5`, `-6`},
		{`1 << 4`, `16`},
		{`-16 >> 2`, `-4`},
		{`-1 >>> 28`, `15`},
		{`6 & 3 = 2`, `true`},
		{`1 | "x"`, ``},

		// Comparisons of one type.
		{`1.0 = 1`, `true`},
		{`"a" < "b"`, `true`},
		{`"Z" < "a"`, `true`},
		{`2 <> 1`, `true`},
		{`2 != 2.0`, `false`},
		{`n < -1.5`, `true`},
		{`-10 < -9.99`, `true`},
		{`0.05 < 0.5`, `true`},
		{`12.5 > 12`, `true`},
		{`0 = -0.0`, `true`},
		{`false < true`, `true`},
		{`null = null`, `true`},
		{`none <= null`, `true`},
		{`[1, 2] = [1.0, 2e0]`, `true`},
		{`[1, 2] != [2, 1]`, `true`},
		{`{a: 1, b: [2]} = {b: [2.0], a: 1}`, `true`},
		{`{a: 1} = {a: 1, b: 2}`, `false`},
		{`[1] < [2]`, ``},
		{`name = "Sock \"L\""`, `true`},
		{`name != 'Sock "L"'`, `false`},
		{`"product" = type`, `true`},
		{`type = "prod"`, `false`},

		// Comparisons of two types, and with undefined.
		{`1 = "1"`, `false`},
		{`none = 0`, `false`},
		{`1 != "1"`, `true`},
		{`1 < "2"`, ``},
		{`missing = 1`, ``},
		{`missing = missing`, ``},
		{`missing != 1`, ``},
		{`missing = null`, ``},
		{`type != 1`, `true`},
		{`price = "27.12"`, `false`},

		// Three values.
		{`true AND missing`, ``},
		{`false AND missing`, `false`},
		{`missing AND false`, `false`},
		{`true OR missing`, `true`},
		{`missing OR true`, `true`},
		{`false OR missing`, ``},
		{`NOT missing`, ``},
		{`NOT active`, `false`},
		{`NOT 1`, ``},
		{`1 AND true`, ``},
		{`active AND NOT gone`, `true`},
		{`gone OR active AND gone`, `false`},
		{`NOT id = "p2"`, `true`},
		{`NOT NOT active`, `true`},

		// IN, BETWEEN, LIKE.
		{`id IN ("p0", "p1")`, `true`},
		{`id NOT IN ("p0", "p1")`, `false`},
		{`id IN ("p0")`, `false`},
		{`id IN ("p0", 1)`, `false`},
		{`id IN ("p0", undefined)`, ``},
		{`missing IN ("p0", 1)`, ``},
		{`missing IN ("p0")`, ``},
		{`price BETWEEN 27 AND 28`, `true`},
		{`price NOT BETWEEN 27 AND 28`, `false`},
		{`price BETWEEN 28 AND 29`, `false`},
		{`price BETWEEN "a" AND 28`, ``},
		{`"abc" LIKE "a%"`, `true`},
		{`"abc" LIKE "%c"`, `true`},
		{`"abc" LIKE "_b_"`, `true`},
		{`"abc" LIKE "ab"`, `false`},
		{`"abbbc" LIKE "a%b%c"`, `true`},
		{`"" LIKE "%"`, `true`},
		{`"Zoë" LIKE "Zo_"`, `true`},
		{`"b" LIKE "[a-c]"`, `true`},
		{`"b" LIKE "[^a-c]"`, `false`},
		{`"50%" LIKE "50!%" ESCAPE "!"`, `true`},
		{`"500" LIKE "50!%" ESCAPE "!"`, `false`},
		{`"a" LIKE "a" ESCAPE "xy"`, ``},
		{`1 LIKE "1"`, ``},
		{`id NOT LIKE "q%"`, `true`},
		{`id LIKE type`, `false`},

		// Choices.
		{`missing ?? "x"`, `"x"`},
		{`none ?? "x"`, `null`},
		{`missing ?? missing ?? 3`, `3`},
		{`active ? 1 : 2`, `1`},
		{`missing ? 1 : 2`, `2`},
		{`gone ? 1 : active ? 3 : 4`, `3`},
		{`"a" || "b" || id`, `"abp1"`},
		{`"a" || 1`, ``},
		{`"a" || "b" = "ab"`, `true`},
		{`@p`, ``},
	} {
		e, err := query.ParseExpr(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		v := e.Eval([]byte(item))
		if got := string(v.AppendJSON(nil)); got != c.want {
			t.Errorf("%s is %q, want %q", c.text, got, c.want)
		}
		if got := e.True([]byte(item)); got != (c.want == "true") || got != v.Bool() {
			t.Errorf("%s is true: %v", c.text, got)
		}
	}
}

func TestFunctions(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`IS_DEFINED(none)`, `true`},
		{`is_defined(missing)`, `false`},
		{`IS_NULL(none)`, `true`},
		{`IS_NULL(missing)`, `false`},
		{`IS_STRING(id) AND IS_NUMBER(price) AND IS_BOOL(gone) AND IS_BOOLEAN(gone) AND IS_ARRAY(tags) AND IS_OBJECT(address)`, `true`},
		{`IS_PRIMITIVE(tags)`, `false`},
		{`IS_INTEGER(1.0)`, `true`},
		{`IS_INTEGER(price)`, `false`},
		{`CONTAINS(name, "ock")`, `true`},
		{`CONTAINS(name, "OCK")`, `false`},
		{`CONTAINS(name, "OCK", true)`, `true`},
		{`CONTAINS(name, 1)`, ``},
		{`CONTAINS(missing, "x")`, ``},
		{`STARTSWITH(id, "p")`, `true`},
		{`ENDSWITH(id, "P1", true)`, `true`},
		{`StringEquals("A", "a", true)`, `true`},
		{`CONCAT(id, "-", type)`, `"p1-product"`},
		{`CONCAT(id, price)`, ``},
		{`UPPER(é)`, `"ZOË"`},
		{`LOWER("ÄB")`, `"äb"`},
		{`LENGTH(é)`, `3`},
		{`LENGTH(1)`, ``},
		{`SUBSTRING("Zoë!", 1, 2)`, `"oë"`},
		{`SUBSTRING("abc", 1, 100)`, `"bc"`},
		{`SUBSTRING("abc", 5, 1)`, `""`},
		{`LEFT("Zoë", 2)`, `"Zo"`},
		{`RIGHT("Zoë", 2)`, `"oë"`},
		{`RIGHT("ab", 5)`, `"ab"`},
		{`LEFT("ab", -1)`, `""`},
		{`TRIM("  a ")`, `"a"`},
		{`LTRIM("xxa", "x")`, `"a"`},
		{`RTRIM(" a ")`, `" a"`},
		{`REPLACE("abab", "b", "")`, `"aa"`},
		{`REPLACE("ab", "", "x")`, `"ab"`},
		{`REPLICATE("ab", 3)`, `"ababab"`},
		{`REPLICATE("ab", 1000000000)`, ``},
		{`INDEX_OF("Zoëo", "o")`, `1`},
		{`INDEX_OF("Zoëo", "o", 2)`, `3`},
		{`INDEX_OF("abc", "x")`, `-1`},
		{`REVERSE(é)`, `"ëoZ"`},
		{`REGEXMATCH(id, "^p[0-9]$")`, `true`},
		{`REGEXMATCH(id, "^P", "i")`, `true`},
		{`REGEXMATCH(id, "(")`, ``},
		{`REGEXMATCH(id, type)`, `false`},
		{`ABS(-9007199254740993)`, `9007199254740993`},
		{`ABS(-1.5)`, `1.5`},
		{`CEILING(1.2)`, `2`},
		{`FLOOR(-1.2)`, `-2`},
		{`ROUND(2.5)`, `3`},
		{`ROUND(-2.5)`, `-3`},
		{`TRUNC(-2.7)`, `-2`},
		{`SIGN(-3.5)`, `-1`},
		{`SQRT(9)`, `3`},
		{`SQRT(-1)`, ``},
		{`SQUARE(price)`, `735.4944`},
		{`POWER(2, 10)`, `1024`},
		{`POWER(10, 400)`, ``},
		{`LOG(8, 2)`, `3`},
		{`PI() > 3.14`, `true`},
		{`ABS("x")`, ``},
		{`ARRAY_CONTAINS(numbers, 2.0)`, `true`},
		{`ARRAY_CONTAINS(tags, {"id": "t2"})`, `false`},
		{`ARRAY_CONTAINS(tags, {"id": "t2"}, true)`, `true`},
		{`ARRAY_CONTAINS(tags, {"id": "t2", "rank": 2}, true)`, `false`},
		{`ARRAY_CONTAINS(id, 1)`, ``},
		{`ARRAY_CONTAINS_ANY(numbers, 9, 1)`, `true`},
		{`ARRAY_CONTAINS_ALL(numbers, 9, 1)`, `false`},
		{`ARRAY_LENGTH(tags)`, `2`},
		{`ARRAY_LENGTH([])`, `0`},
		{`ARRAY_CONCAT([1], numbers, [])`, `[1,3,1,2]`},
		{`ARRAY_SLICE(numbers, 1)`, `[1,2]`},
		{`ARRAY_SLICE(numbers, -2, 1)`, `[1]`},
		{`ARRAY_SLICE(numbers, 9)`, `[]`},
		{`IIF(active, 1, 2)`, `1`},
		{`IIF(missing, 1, 2)`, `2`},
		{`ToString(price)`, `"27.12"`},
		{`ToString(tags[0])`, `"{\"id\": \"t1\", \"name\": \"New\"}"`},
		{`ToString(missing)`, ``},
		{`StringToNumber(" 1.50 ")`, `1.50`},
		{`StringToNumber("x")`, ``},
		{`StringToBoolean("true")`, `true`},
		{`StringToArray("[1, 2]")[1]`, `2`},
		{`StringToObject("{}")`, `{}`},
		{`StringToNull("null")`, `null`},
	} {
		e, err := query.ParseExpr(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := string(e.Eval([]byte(item)).AppendJSON(nil)); got != c.want {
			t.Errorf("%s is %q, want %q", c.text, got, c.want)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "line 1, column 1: want an expression, at the end"},
		{`a =`, "line 1, column 4: want an expression, at the end"},
		{`a = = 1`, "line 1, column 5: want an expression, near `= 1`"},
		{`a b`, "line 1, column 3: want an operator or the end, near `b`"},
		{`"é" = $ # x`, "line 1, column 9: '#' has no meaning here, near `# x`"},
		{"a = 1\n  AND b = ", "line 2, column 11: want an expression, at the end"},
		{`a = 'x`, "line 1, column 5: the string does not end, near `'x`"},
		{`a = "\x"`, "line 1, column 6: \\ is followed by one of \"'\\/bfnrt or by u and the four hexadecimal digits of a character, near `\\x\"`"},
		{`a = "\ud800"`, "line 1, column 6: \\ is followed by one of \"'\\/bfnrt or by u and the four hexadecimal digits of a character, near `\\ud800\"`"},
		{"a = \"\xff\"", "line 1, column 6: byte 0xFF is not UTF-8, near `\uFFFD\"`"},
		{`a = 1x`, "line 1, column 6: want an operator behind the number, near `x`"},
		{`a = 1.`, "line 1, column 7: want a digit behind the point, at the end"},
		{`a = 1e`, "line 1, column 7: want a digit of the exponent, at the end"},
		{`a = 1e1000000`, "line 1, column 5: the number's exponent is beyond 999999, near `1e1000000`"},
		{`(a = 1`, "line 1, column 7: want ), at the end"},
		{`a.`, "line 1, column 3: want the name of a property behind the point, at the end"},
		{`a["b"`, "line 1, column 6: want ], at the end"},
		{`a IN 1`, "line 1, column 6: want ( behind IN, near `1`"},
		{`a IN ()`, "line 1, column 7: want an expression, near `)`"},
		{`a IN (1`, "line 1, column 8: want , or ), at the end"},
		{`a NOT 1`, "line 1, column 7: want IN, BETWEEN or LIKE behind NOT, near `1`"},
		{`a BETWEEN 1 OR 2`, "line 1, column 13: want AND of BETWEEN, near `OR 2`"},
		{`a ? 1`, "line 1, column 6: want : of the choice begun by ?, at the end"},
		{`in = 1`, "line 1, column 1: want an expression; IN is a word of the language, near `in = 1`"},
		{`{1: 2}`, "line 1, column 2: want the name of a property, near `1: 2}`"},
		{`{a: 1, "a": 2}`, "line 1, column 8: the object has a property \"a\" already, near `\"a\": 2}`"},
		{`{a 1}`, "line 1, column 4: want : behind the name of a property, near `1}`"},
		{`[1, ]`, "line 1, column 5: want an expression, near `]`"},
		{`@ = 1`, "line 1, column 1: want the name of a parameter behind @, near `@ = 1`"},
		{`a = 1 AND FOO(b)`, "line 1, column 11: there is no function FOO, near `FOO(b)`"},
		{`ISNULL(b)`, "line 1, column 1: there is no function ISNULL, but IS_NULL, near `ISNULL(b)`"},
		{`GetCurrentTimestamp()`, "line 1, column 1: there is no function GETCURRENTTIMESTAMP; expressions do not depend on the time, near `GetCurrentTimestamp()`"},
		{`CONTAINS(a)`, "line 1, column 1: CONTAINS takes 2 to 3 arguments, not 1, near `CONTAINS(a)`"},
		{`LOWER()`, "line 1, column 1: LOWER takes 1 argument, not 0, near `LOWER()`"},
		{`CONCAT("a")`, "line 1, column 1: CONCAT takes at least 2 arguments, not 1, near `CONCAT(\"a\")`"},
		{`a = 1; b = 2 and something that is long`, "line 1, column 6: ';' has no meaning here, near `; b = 2 and something th…`"},
	} {
		_, err := query.ParseExpr(c.text)
		if err == nil {
			t.Errorf("%q was read", c.text)
			continue
		}
		if diff := cmp.Diff(c.want, err.Error()); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
	}
}

func ExampleParseExpr() {
	e, err := query.ParseExpr(`type = 'category' and not (stock <= 0) and ARRAY_CONTAINS(tags, {id: "x"}, true)`)
	if err != nil {
		panic(err)
	}
	fmt.Println(e)
	fmt.Println(e.Paths())
	for _, q := range e.Equalities() {
		fmt.Println(q.Path, string(q.Value))
	}
	fmt.Println(e.True([]byte(`{"type": "category", "stock": 1, "tags": [{"id": "x", "name": "New"}]}`)))
	fmt.Println(e.True([]byte(`{"type": "category", "tags": [{"id": "x"}]}`)), "because stock is undefined")

	_, err = query.ParseExpr(`type = 'category' and`)
	fmt.Println(err)
	// Output:
	// type = "category" AND NOT stock <= 0 AND ARRAY_CONTAINS(tags, {"id": "x"}, true)
	// [[type] [stock] [tags]]
	// [type] "category"
	// true
	// false because stock is undefined
	// line 1, column 22: want an expression, at the end
}
