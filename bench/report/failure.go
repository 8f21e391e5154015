// Package report is what measurements have in common in what they print.
package report

// Failure stands in the place of a metric that could not be measured.
type Failure struct {
	Name   string `json:"metric"`
	Error  string `json:"error"`
	Remedy string `json:"remedy,omitempty"`
	Host   string `json:"host"`
}
