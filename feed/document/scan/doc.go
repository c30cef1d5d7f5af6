// Package scan moves through JSON text without building values. It is the only reader of
// JSON as bytes: package document and the query language use it.
//
// Its functions assume that the text is valid. If it is not, they only promise not to panic
// and not to read outside of it. Positions are indexes into the text b; -1 means that
// there is nothing, or nothing more. A walk over an object and one over an array are
//
//	for i = scan.FirstMember(b, i); i >= 0; i = scan.Next(b, end) {
//		quote, value := scan.MemberValue(b, i) // the name is b[i+1:quote]
//		end = scan.Value(b, value)             // the value is b[value:end]
//	}
//	for i = scan.FirstElement(b, i); i >= 0; i = scan.Next(b, end) {
//		end = scan.Value(b, i)
//	}
//
// where quote and end are checked for -1. Functions keep no state and write to nothing
// but dst.
//
// This package is no API for other programs.
package scan
