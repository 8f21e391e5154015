package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"thaw/api"
)

func snapshotURL(ref, op string) string { return "/v1/snapshots/" + url.PathEscape(ref) + op }

// Snapshots lists the caller's snapshots, newest first.
func (c *Client) Snapshots(ctx context.Context) ([]api.Snapshot, error) {
	l, err := call[api.SnapshotList](ctx, c, http.MethodGet, "/v1/snapshots", nil)
	return l.Snapshots, err
}

// SnapshotTree lists the caller's snapshots and the templates below them, each parent
// before its children.
func (c *Client) SnapshotTree(ctx context.Context) (api.SnapshotTree, error) {
	return call[api.SnapshotTree](ctx, c, http.MethodGet, "/v1/snapshots/tree", nil)
}

// Snapshot shows a snapshot by its id, at least 6 digits of it, or its name; the
// other calls take the same.
func (c *Client) Snapshot(ctx context.Context, ref string) (api.Snapshot, error) {
	return call[api.Snapshot](ctx, c, http.MethodGet, snapshotURL(ref, ""), nil)
}

// RemoveSnapshot deletes a snapshot, and with cascade all that need it.
func (c *Client) RemoveSnapshot(ctx context.Context, ref string, cascade bool) (api.Removed, error) {
	path := snapshotURL(ref, "")
	if cascade {
		path += "?cascade=true"
	}
	return call[api.Removed](ctx, c, http.MethodDelete, path, nil)
}

// MergeSnapshot makes a checkpoint independent of the checkpoints below it.
func (c *Client) MergeSnapshot(ctx context.Context, ref string) (api.Snapshot, error) {
	return call[api.Snapshot](ctx, c, http.MethodPost, snapshotURL(ref, "/merge"), nil)
}

// CollectSnapshots makes room.
func (c *Client) CollectSnapshots(ctx context.Context, r api.CollectRequest) (api.Removed, error) {
	return call[api.Removed](ctx, c, http.MethodPost, "/v1/snapshots/gc", r)
}

// ExportSnapshot writes a snapshot's archive to w. After an error what was written is
// not whole.
func (c *Client) ExportSnapshot(ctx context.Context, ref string, w io.Writer) error {
	resp, err := c.do(ctx, http.MethodGet, snapshotURL(ref, "/export"), nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("client: export snapshot: %w", err)
	}
	return nil
}

// ImportSnapshot takes an archive in and returns what it brought.
func (c *Client) ImportSnapshot(ctx context.Context, r io.Reader) ([]api.Snapshot, error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/snapshots", r, http.Header{"Content-Type": {"application/octet-stream"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var l api.SnapshotList
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&l); err != nil {
		return nil, fmt.Errorf("client: decode answer: %w", err)
	}
	return l.Snapshots, nil
}
