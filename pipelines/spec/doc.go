// Package spec holds what operators declare: containers, pipelines and tests, as YAML
// documents in the habit of Kubernetes.
//
//	YAML ── Load ──▶ Resources ── Check ──▶ Findings, each file:line:column
//	                     │ none
//	                     ▼
//	                registry.Apply
//
// Loading reads every document to its end and collects all that is wrong with it.
// Check holds the declarations against each other and against what exists already: a
// cascade must find its target's items by a whole key, no field has two writers, cycles
// of fields must come to rest. What is accepted has one spelling (normalize) and one
// meaning (meaning.go), so that two declarations can be compared.
//
// A spec holds expressions and paths parsed (Expression, document.Field), with the texts
// that were declared, as which they are written. They are parsed once, when YAML is
// decoded or a record is read. rule.go says them in the words of processors and
// accumulators, which compile them.
//
// All of it is pure: nothing is asked and nothing changed but the files that are read.
// It is safe for concurrent use.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package spec
