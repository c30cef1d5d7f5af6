package store

import (
	"context"
	"slices"
)

// DropIndex takes back what WantIndex recorded, when no pipeline needs the index
// any more. One that the container's declaration names stays.
func (c *Catalog) DropIndex(ctx context.Context, database, name, path string) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		i.IndexesWanted = slices.DeleteFunc(i.IndexesWanted, func(p string) bool { return p == path })
		return nil
	})
	return err
}
