package sdk_test

import (
	"encoding/xml"
	"fmt"
	"os"
	"testing"
)

// outcome is how a test of a suite ended. failure is empty where it passed.
type outcome struct{ name, failure string }

// readJUnit reads what a runner has written of the tests that it ran, in JUnit's form. Skipped ones are left out, and
// of several of one name each after the first has its number.
func readJUnit(t *testing.T, path string) []outcome {
	t.Helper()
	type problem struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type suite struct {
		Cases []struct {
			Class    string    `xml:"classname,attr"`
			Name     string    `xml:"name,attr"`
			Failures []problem `xml:"failure"`
			Errors   []problem `xml:"error"`
			Skipped  []problem `xml:"skipped"`
		} `xml:"testcase"`
	}
	data, err := os.ReadFile(path)
	must(t, err)
	// Mocha writes one suite, pytest a list of them.
	var report struct {
		suite
		Suites []suite `xml:"testsuite"`
	}
	must(t, xml.Unmarshal(data, &report))
	var outcomes []outcome
	times := map[string]int{}
	for _, s := range append(report.Suites, report.suite) {
		for _, c := range s.Cases {
			if len(c.Skipped) > 0 {
				continue
			}
			o := outcome{name: c.Class + ": " + c.Name}
			if times[o.name]++; times[o.name] > 1 {
				o.name += fmt.Sprintf(" (%d)", times[o.name])
			}
			for _, p := range append(c.Failures, c.Errors...) {
				o.failure += p.Message + "\n" + p.Text + "\n"
			}
			outcomes = append(outcomes, o)
		}
	}
	return outcomes
}

// judgeAll judges the outcomes of a whole suite, of which there are least or more.
func (f *failures) judgeAll(t *testing.T, outcomes []outcome, least int) {
	t.Helper()
	if len(outcomes) < least {
		t.Errorf("%d tests ran, of %d or more", len(outcomes), least)
	}
	var ran []string
	for _, o := range outcomes {
		ran = append(ran, o.name)
		t.Run(o.name, func(t *testing.T) { f.judge(t, o.name, o.failure) })
	}
	f.complete(t, ran)
}
