// Package reference tells what each key of a document means: of containers, pipelines and
// tests, as YAML declares them.
//
//	types and comments ── pipelines/spec, a test ──▶ configs/millrace.schema.json
//	                                                     │ New
//	                                                     ▼
//	                                            a tree of keys ──▶ millrace explain
//	                                                           ──▶ docs/pipelines.md
//
// So the words stand in one place, the comments of the types that are decoded, and what
// editors, the terminal and the page say is the same.
//
// A tree never changes, and is safe for concurrent use.
package reference
