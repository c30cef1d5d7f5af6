// Package boottime has the clock by which rights are measured: since an arbitrary moment, never set, and counting the time
// during which the machine was suspended.
//
// This package is no API for other programs.
package boottime
