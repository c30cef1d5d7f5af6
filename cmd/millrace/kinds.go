package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// kind is a kind of resource as it is named on the command line.
type kind string

const (
	kindContainer kind = "container"
	kindPipeline  kind = "pipeline"
)

// parseKind reads container, containers, Pipeline and the like.
func parseKind(s string) (kind, error) {
	switch k := kind(strings.TrimSuffix(strings.ToLower(s), "s")); k {
	case kindContainer, kindPipeline:
		return k, nil
	}
	return "", &usageError{fmt.Errorf("there is no kind %s: container or pipeline is expected", s)}
}

// split divides database/name; without a database it is that of --database.
func (a *app) split(name string) (database, rest string) {
	if database, rest, ok := strings.Cut(name, "/"); ok {
		return database, rest
	}
	return a.database, name
}

// containers returns one container, or all of the database if name is "".
func (s *session) containers(ctx context.Context, database, name string) ([]store.ContainerInfo, error) {
	if name != "" {
		info, err := s.client.Catalog().Get(ctx, database, name)
		return []store.ContainerInfo{info}, err
	}
	all, err := s.client.Catalog().List(ctx)
	var found []store.ContainerInfo
	for _, info := range all {
		if info.Database == database {
			found = append(found, info)
		}
	}
	return found, err
}

// pipelines returns one pipeline, or all of the database if name is "".
func (s *session) pipelines(ctx context.Context, database, name string) ([]registry.Record, error) {
	if name != "" {
		rec, err := s.registry.Get(ctx, database, name)
		return []registry.Record{rec}, err
	}
	all, err := s.registry.List(ctx)
	var found []registry.Record
	for _, rec := range all {
		if rec.Database == database {
			found = append(found, rec)
		}
	}
	return found, err
}
