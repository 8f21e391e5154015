package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"thaw/bench/load"
)

// fio runs one fio job on the data disk.
func fio(j load.Job) (load.Result, error) {
	out, err := output("fio", "--name=bench", "--filename="+load.DataDev, "--rw="+j.Mode,
		"--bs="+strconv.Itoa(j.Block), "--iodepth="+strconv.Itoa(j.Depth), "--ioengine=libaio", "--direct=1",
		"--time_based", fmt.Sprintf("--runtime=%dms", j.Time.Milliseconds()), fmt.Sprintf("--ramp_time=%dms", j.Ramp.Milliseconds()),
		"--norandommap", "--randrepeat=0", "--thread", "--output-format=json")
	if err != nil {
		return load.Result{}, err
	}
	type side struct {
		IOPS    float64 `json:"iops"`
		Bytes   float64 `json:"bw_bytes"`
		Latency struct {
			Percentile map[string]float64 `json:"percentile"`
		} `json:"clat_ns"`
	}
	var report struct {
		Jobs []struct{ Read, Write side } `json:"jobs"`
	}
	// Notes of fio's may stand before the document.
	if err := json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &report); err != nil || len(report.Jobs) != 1 {
		return load.Result{}, fmt.Errorf("report of fio: %w", errors.Join(err, fmt.Errorf("%d jobs", len(report.Jobs))))
	}
	s := report.Jobs[0].Read
	if strings.HasSuffix(j.Mode, "write") {
		s = report.Jobs[0].Write
	}
	return load.Result{
		Job: j.String(), Rate: s.IOPS, Bytes: s.Bytes,
		P50: s.Latency.Percentile["50.000000"] / 1000, P99: s.Latency.Percentile["99.000000"] / 1000,
	}, nil
}

// serverBusy is what iperf3 says while its server still ends the last test.
const serverBusy = "the server is busy"

// iperf sends to the host or has it send.
func iperf(j load.Job) (load.Result, error) {
	args := []string{"-J", "-c", load.HostIP, "-t", fmt.Sprint(j.Time.Seconds())}
	if j.Mode == "rx" {
		args = append(args, "-R")
	}
	out, err := output("iperf3", args...)
	for try := 0; err != nil && strings.Contains(err.Error(), serverBusy) && try < 50; try++ {
		time.Sleep(20 * time.Millisecond)
		out, err = output("iperf3", args...)
	}
	if err != nil {
		return load.Result{}, err
	}
	var report struct {
		Error string
		End   struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &report); err != nil || report.Error != "" {
		return load.Result{}, fmt.Errorf("report of iperf3: %w", errors.Join(err, errors.New(report.Error)))
	}
	bits := report.End.Received.Bits
	return load.Result{Job: j.String(), Rate: bits, Bytes: bits / 8}, nil
}

// output runs a program and returns its standard output; an error has what it
// wrote.
func output(name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %.400q %.400q", name, err, stdout.String(), stderr.String())
	}
	return stdout.Bytes(), nil
}
