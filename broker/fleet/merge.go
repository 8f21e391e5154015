package fleet

import "context"

// Merge makes a checkpoint independent of those below it. Machines that are made of it from
// then on are made of what the merge wrote; those that run go on with what they have.
// Errors: those of Merge of package store.
func (f *Fleet) Merge(ctx context.Context, id string) error {
	_, err := f.cfg.Store.Merge(ctx, id)
	f.images.renew(id) // also after an error: it may have been made
	return err
}
