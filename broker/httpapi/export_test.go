package httpapi

import (
	"log/slog"
	"net/http"
	"time"

	"thaw/broker"
)

// NewImpatientServer is NewServer with other bounds for connections that stand still.
func NewImpatientServer(b *broker.Broker, log *slog.Logger, upload, download time.Duration) *http.Server {
	return newServer(handler(handlers{b, stalls{upload, download}}), log)
}
