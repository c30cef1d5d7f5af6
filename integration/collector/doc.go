// Package collector runs an OpenTelemetry collector with deploy/otel/collector.yaml: its own
// validation takes the sample and refuses mistakes, and what a process of Millrace pushes comes
// through it to the backends. It is a module of its own, because the collector is hundreds of
// packages that are no part of Millrace; to compile them takes two minutes of CPU where nothing of it
// is in Go's cache. Run it with
//
//	cd integration/collector && go test ./...
package collector
