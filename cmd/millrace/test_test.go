package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines/testcase"
)

// TestSamplesPass runs the tests of the samples.
func TestSamplesPass(t *testing.T) {
	for _, sample := range []string{"webstore", "bookstore", "reports"} {
		t.Run(sample, func(t *testing.T) {
			out, errs, code := command(t, "", "test", "-f", "../../configs/"+sample)
			if code != codeOK || errs != "" || !strings.Contains(out, " passed in ") {
				t.Errorf("exit %d\n%s%s", code, out, errs)
			}
		})
	}
}

// TestTestsFail tells where, and exits with 1.
func TestTestsFail(t *testing.T) {
	shop, failing := "../../pipelines/testdata/tests/shop.yaml", "../../pipelines/testdata/tests-failing"
	out, errs, code := command(t, "", "test", "-f", shop, "-f", failing, "--run", "^fields$")
	place := filepath.Join(failing, "failing.yaml") + ":19:32: authors[0].name"
	if code != codeBad || errs != "\n" && errs != "" || !strings.Contains(out, place) || !strings.Contains(out, "1 of 1 test failed") {
		t.Errorf("exit %d\n%s%q", code, out, errs)
	}
	out, _, code = command(t, "", "test", "-f", shop, "-f", failing, "--run", "^(fields|passing)$", "-o", "json")
	var report testcase.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != codeBad || report.Passed != 1 || report.Failed != 1 || len(report.Tests) != 2 {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	for want, args := range map[int][]string{
		codeNotAsked: {"test"},
		codeBad:      {"test", "-f", shop, "--run", "there is none"},
	} {
		if _, _, code := command(t, "", args...); code != want {
			t.Errorf("%v: exit %d, want %d", args, code, want)
		}
	}
}
