package fleet

import (
	"os"

	"thaw/snapshot/store"
)

// fingerprint is what the state of a machine of an image depends on, here.
func (f *Fleet) fingerprint(image string) (store.Fingerprint, error) {
	p := store.Fingerprint{
		Format: store.Format(), CPU: f.cfg.Host.CPUModel, CPUHash: f.cpu, Host: string(f.cfg.Host.Kind), HostKrn: f.cfg.Host.Kernel,
	}
	for _, part := range []struct {
		to   *string
		open func() (*os.File, error)
	}{
		{&p.VMM, func() (*os.File, error) { return os.Open(f.cfg.VMM) }},
		{&p.Kernel, f.cfg.Assets.Kernel},
		{&p.Image, func() (*os.File, error) { return f.cfg.Assets.Image(image) }},
	} {
		file, err := part.open()
		if err != nil {
			return p, err
		}
		*part.to, err = f.digests.Of(file)
		file.Close()
		if err != nil {
			return p, err
		}
	}
	return p, nil
}
