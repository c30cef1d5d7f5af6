// Package model is a folder of specifications in TLA+, and of the test that checks them.
// README.md says what they hold. It is no API: it has no code.
package model
