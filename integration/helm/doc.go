// Package helm_test holds deploy/helm/millrace to its word: Helm's own linter finds nothing,
// what it renders is understood by Kubernetes' own types to the last key, and its pods run,
// as processes with the arguments, environment and volumes that were rendered.
//
// It is a module of its own, because Helm and Kubernetes are no part of Millrace.
package helm_test
