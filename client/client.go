package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"thaw/api"
)

// maxBody bounds every JSON answer, in bytes.
const maxBody = 64 << 20

const dialTimeout = 5 * time.Second

// Client talks to one daemon. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// New makes a client for a host as Resolve takes it. It does not connect.
func New(host string) (*Client, error) {
	socket, err := Resolve(host)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
	}}}, nil
}

// Socket is the path that the client connects to.
func (c *Client) Socket() string { return c.socket }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// do sends a request and returns the answer if its status is a success.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://thaw"+path, body)
	if err != nil {
		return nil, fmt.Errorf("client: make request: %w", err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

// unreachable explains a connection that could not be made.
func (c *Client) unreachable(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return fmt.Errorf("client: talk to the daemon: %w", err)
	}
	e := api.Errorf(api.CodeDaemonDown, "no daemon answers on %s", c.socket).WithCause(op.Err)
	if c.socket == LabSocket() {
		return e.WithRemedy("start the lab with `make lab`")
	}
	return e.WithRemedy("start one as root with `thawd` (with --dev on a development machine), or name another with --host or $%s", HostEnv)
}

func readError(resp *http.Response) error {
	var e api.Error
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil || e.Code == "" {
		return api.Errorf(api.CodeInternal, "the daemon answered %s", resp.Status).WithCause(errors.New(strings.TrimSpace(string(b[:min(len(b), 200)]))))
	}
	return e.WithStatus(resp.StatusCode)
}

// call sends a JSON body, if there is one, and decodes a JSON answer, if one is wanted.
func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	var r io.Reader
	header := http.Header{}
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return out, fmt.Errorf("client: encode request: %w", err)
		}
		r = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	}
	resp, err := c.do(ctx, method, path, r, header)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return out, nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return out, fmt.Errorf("client: read answer: %w", err)
	}
	if len(b) > maxBody {
		return out, api.Errorf(api.CodeResponseTooLarge, "the answer is larger than %d bytes", maxBody)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, fmt.Errorf("client: decode answer: %w", err)
	}
	return out, nil
}

// Info describes the daemon.
func (c *Client) Info(ctx context.Context) (api.Info, error) {
	return call[api.Info](ctx, c, http.MethodGet, "/v1/info", nil)
}

// AddInput uploads a file.
func (c *Client) AddInput(ctx context.Context, r io.Reader) (api.Input, error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/inputs", r, http.Header{"Content-Type": {"application/octet-stream"}})
	if err != nil {
		return api.Input{}, err
	}
	defer resp.Body.Close()
	var in api.Input
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&in); err != nil {
		return api.Input{}, fmt.Errorf("client: decode answer: %w", err)
	}
	return in, nil
}

// RemoveInput deletes an upload, once no job needs it.
func (c *Client) RemoveInput(ctx context.Context, id string) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, "/v1/inputs/"+url.PathEscape(id), nil)
	return err
}

// Submit queues a job.
func (c *Client) Submit(ctx context.Context, r api.JobRequest) (api.Job, error) {
	return call[api.Job](ctx, c, http.MethodPost, "/v1/jobs", r)
}

// Jobs lists the caller's jobs, newest first.
func (c *Client) Jobs(ctx context.Context) ([]api.Job, error) {
	l, err := call[api.JobList](ctx, c, http.MethodGet, "/v1/jobs", nil)
	return l.Jobs, err
}

// Job shows a job.
func (c *Client) Job(ctx context.Context, id string) (api.Job, error) {
	return call[api.Job](ctx, c, http.MethodGet, "/v1/jobs/"+url.PathEscape(id), nil)
}

// Manifest lists a job's artifacts; there are none before it is finished.
func (c *Client) Manifest(ctx context.Context, id string) (api.Manifest, error) {
	return call[api.Manifest](ctx, c, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/artifacts", nil)
}

// Cancel cancels a job.
func (c *Client) Cancel(ctx context.Context, id string) (api.Job, error) {
	return call[api.Job](ctx, c, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/cancel", nil)
}

// Delete removes a finished job.
func (c *Client) Delete(ctx context.Context, id string) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, "/v1/jobs/"+url.PathEscape(id), nil)
	return err
}
