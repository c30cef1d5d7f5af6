// Package sdk drives a real millrace process with the official SDKs of Azure
// Cosmos DB for Go (azcosmos), JavaScript (@azure/cosmos), Python (azure-cosmos), Java (azure-cosmos) and Rust (azure_data_cosmos):
// what an application does with them must do the same here. It is a module of its own,
// so that the product links none of them. Run it with
//
//	cd integration/sdk && go test ./...
//
// The tests that the SDKs' packages carry run too, see TestSuite_Go: each that fails is listed in
// testdata with its reason, and the list is neither longer nor shorter than it has to be. Some of
// them want the emulator's address, 127.0.0.1:8081.
//
// The JavaScript cases stand in js, programs that stand on that SDK in jsprograms, and both need Node 20 with npm; those of Python stand in
// python and need Python 3.10 with venv; those of Java stand in java, Spring Data on that SDK in javaprograms, and both need Maven and a
// JDK of 17; those of Rust stand in rust and need cargo, Rust 1.88 and a C compiler. What cargo builds is kept in the user's cache.
// Without, they are skipped and say so. -short leaves out Rust, whose crates take some six minutes of a processor to compile:
// make test passes it, make sdk runs all. -long runs more rounds of kills and moves, and -webstore the data set of which MILLRACE_WEBSTORE names the
// directory.
package sdk
