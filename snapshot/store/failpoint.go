package store

// step is an instant at which a crash must leave the old or the new state.
type step string

// The steps, in the order in which an operation takes them; those of plans are named in
// package plan.
const (
	stepBegun       step = "begin: folder made"
	stepState       step = "commit: state written"
	stepMemory      step = "commit: memory written"
	stepDisk        step = "commit: disk written"
	stepIndex       step = "commit: index written"
	stepManifest    step = "commit: manifest written"
	stepSynced      step = "commit: folder synced"
	stepCommitted   step = "commit: renamed"
	stepDurable     step = "commit: parent synced"
	stepDeleted     step = "delete: renamed"
	stepRemoved     step = "delete: removed"
	stepMergeLayer  step = "merge: layer written"
	stepMergeFiles  step = "merge: files written"
	stepMergeNew    step = "merge: manifest written"
	stepMergeMade   step = "merge: manifest renamed"
	stepMergeSwept  step = "merge: old files removed"
	stepImportFile  step = "import: file written"
	stepImportWhole step = "import: archive read"
)

// at tells the test's hook, if there is one, that the step was reached. An error of
// the hook is a fault of the file system at that instant.
func (s *Store) at(p step) error {
	if s.hook == nil {
		return nil
	}
	return s.hook(p)
}
