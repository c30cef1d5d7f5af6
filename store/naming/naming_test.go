package naming_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/naming"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"orders": true, "Orders": true, "日本 ü.*>=%20:\"'": true, strings.Repeat("é", 255): true, strings.Repeat("🙂", 255): true,
		" leading": true, "...": true, "-a": true, "_": true, "=5pel": true, "a.b": true, "e\u0301": true, "\u00a0": true,
		strings.Repeat("x", 64): true, strings.Repeat("x", 255): true,
		"": false, strings.Repeat("x", 256): false, strings.Repeat("🙂", 256): false, ".": false, "..": false, "trailing ": false, " ": false,
		"a/b": false, `a\b`: false, "a#b": false, "a?b": false, "a\nb": false, "a\x00": false, "\x7f": false, "\u0085": false, "\xff": false,
	} {
		if err := naming.Check(name); (err == nil) != ok {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}

func TestCheckPlain(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"orders": true, "0-_": true, strings.Repeat("x", 63): true,
		"": false, strings.Repeat("x", 64): false, "-a": false, "_a": false, "a.b": false, "é": false, "a\n": false,
	} {
		if err := naming.CheckPlain(name); (err == nil) != ok || naming.IsPlain(name) != ok {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}

// Tokens are stored: they never change.
func TestToken(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{
		"orders": "orders", "Web_Store-2": "Web_Store-2", "日本": "=5pel5pys", "a.b": "=YS5i", "_a": "=X2E", "": "=", "=YS5i": "=PVlTNWk",
	} {
		if got := naming.Token(name); got != token {
			t.Errorf("the token of %q is %q, want %q", name, got, token)
		}
	}
}

func TestOfToken_RefusesWhatTokenDoesNotReturn(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "a.b", "-a", "=b3JkZXJz", "=YS5j=", "=YR", "=YS\n5i", "=*", strings.Repeat("x", 64)} {
		if name, err := naming.OfToken(token); err == nil {
			t.Errorf("%q stands for %q", token, name)
		}
	}
}

// natsToken is what a part of a key in a key-value bucket may be made of.
var natsToken = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+$`)

// Whatever two texts are, their tokens are equal if and only if they are, and a token gives back its text.
func FuzzToken(f *testing.F) {
	for _, name := range []string{"orders", "a.b", "=YS5i", "", "日本", "\xff", strings.Repeat("🙂", 255), "a ", "a>*"} {
		f.Add(name, name+"x")
		f.Add(name, naming.Token(name))
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := naming.Token(a), naming.Token(b)
		if (a == b) != (x == y) {
			t.Errorf("%q is %q and %q is %q", a, x, b, y)
		}
		if back, err := naming.OfToken(x); err != nil || back != a {
			t.Errorf("%q is %q, which is %q: %v", a, x, back, err)
		}
		if !natsToken.MatchString(x) || naming.Check(a) == nil && len(x) > 1361 {
			t.Errorf("%q is %q of %d bytes", a, x, len(x))
		}
		if back, err := naming.OfToken(b); err == nil && naming.Token(back) != b {
			t.Errorf("%q stands for %q, which is %q", b, back, naming.Token(back))
		}
	})
}
