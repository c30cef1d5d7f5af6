// Package delta reads what the Parquet sink writes with another implementation of Delta
// Lake, delta-rs, and compares it with the rows that were written. delta-rs comes as
// a package of Python:
//
//	python3 -m venv /tmp/delta && /tmp/delta/bin/pip install -r integration/delta/requirements.txt
//	DELTA_PYTHON=/tmp/delta/bin/python go test ./integration/delta
//
// Without it the tests are skipped and say so. With an interpreter that has pyspark they read with Spark instead,
// which takes some minutes: make spark installs it for them.
package delta
