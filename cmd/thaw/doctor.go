package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/assets"
	"thaw/internal/hostinfo"
	"thaw/lab"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check this machine and say how to mend what is missing", Args: cobra.NoArgs,
		Long: `Doctor looks at this machine: KVM, cgroups, guest kernels, images, QEMU, the lab and
whether a daemon answers. What is absent is said with its remedy; doctor ends with 1
when something required is MISSING.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
}

func (a *app) doctor(ctx context.Context) error {
	host := broker.WireHost(hostinfo.Detect())
	host.Checks = append(host.Checks, programChecks()...)
	made, err := assetChecks()
	if err != nil {
		return err
	}
	host.Checks = append(host.Checks, made...)
	host.Checks = append(host.Checks, qemuCheck(), labCheck(), a.daemonCheck(ctx))
	ok := true
	for _, c := range host.Checks {
		ok = ok && (c.OK || !c.Required)
	}
	if a.json {
		err = a.printJSON(host)
	} else {
		a.printChecks(host)
	}
	if err == nil && !ok {
		return &exitError{code: exitFailed}
	}
	return err
}

func (a *app) printChecks(host api.Host) {
	fmt.Fprintf(a.stdout, "host %s, %s, Linux %s\n", host.Kind, host.CPUModel, host.Kernel)
	for _, c := range host.Checks {
		mark := "ok     "
		switch {
		case !c.OK && c.Required:
			mark = "MISSING"
		case !c.OK:
			mark = "absent "
		}
		fmt.Fprintf(a.stdout, "%s  %-16s %s\n", mark, c.Name, c.Detail)
		if !c.OK && c.Remedy != "" {
			fmt.Fprintf(a.stdout, "         %-16s → %s\n", "", c.Remedy)
		}
	}
}

// programChecks looks for the programs that thawd needs beside itself.
func programChecks() []api.Check {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	var out []api.Check
	for _, name := range []string{"thawd", "thaw-vmm", "thaw-init"} {
		path := filepath.Join(filepath.Dir(exe), name)
		c := api.Check{Name: name, OK: true, Required: true, Detail: path}
		if _, err := os.Stat(path); err != nil {
			c.OK, c.Detail, c.Remedy = false, err.Error(), "run `make build`"
		}
		out = append(out, c)
	}
	return out
}

// assetChecks looks for kernels and images.
func assetChecks() ([]api.Check, error) {
	var out []api.Check
	for _, k := range []struct {
		name, remedy string
		required     bool
	}{{"tuned", "run `make kernel`", true}, {"stock", "run `make kernel-stock` (for the lab, and for hosts with VMX or SVM)", false}} {
		set, err := assets.New(assets.Config{Kernel: k.name})
		if err != nil {
			return nil, err
		}
		found, _ := set.Describe(nil)
		out = append(out, assetCheck("kernel "+k.name, found, k.remedy, k.required))
	}
	set, err := assets.New(assets.Config{Kernel: "tuned"})
	if err != nil {
		return nil, err
	}
	_, images := set.Describe(imageNames)
	for _, name := range imageNames {
		out = append(out, assetCheck("image "+name, images[name], "run `make images`", false))
	}
	return out, nil
}

// qemuCheck looks for what bench compares with. The lab has a QEMU of its own.
func qemuCheck() api.Check {
	c := api.Check{Name: "qemu"}
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		c.Detail, c.Remedy = "not installed; only `thaw bench` compares with it", "apt-get install qemu-system-x86, or `make deps`"
		return c
	}
	c.OK, c.Detail = true, path
	return c
}

// labCheck says whether the lab is made, and how it is.
func labCheck() api.Check {
	c := api.Check{Name: "lab", Remedy: "run `make lab`"}
	tools, err := lab.CachedTools()
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	if tools == nil {
		c.Detail = "not made yet; it is for tests, and for hosts without usable KVM"
		return c
	}
	status, err := lab.ReadStatus(lab.DefaultStateDir())
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	c.Detail = fmt.Sprintf("%s; %s, Linux %s", status.State, tools.Manifest.QEMU, tools.Manifest.Kernel)
	if status.State == lab.StateFailed {
		return c
	}
	c.OK, c.Remedy = true, ""
	return c
}

func assetCheck(name string, a api.Asset, remedy string, required bool) api.Check {
	c := api.Check{Name: name, OK: a.OK, Required: required, Detail: a.Path}
	if !a.OK {
		c.Detail, c.Remedy = a.Error, remedy
	}
	return c
}

func (a *app) daemonCheck(ctx context.Context) api.Check {
	c := api.Check{Name: "daemon"}
	cl, err := a.client()
	if err == nil {
		defer cl.Close()
		var info api.Info
		if info, err = cl.Info(ctx); err == nil {
			c.OK, c.Detail = true, fmt.Sprintf("%s answers, version %s", cl.Socket(), info.Version)
			return c
		}
	}
	e := api.AsError(err)
	c.Detail, c.Remedy = e.Error(), e.Remedy
	return c
}
