package main

import "github.com/spf13/cobra"

func (p *program) trajectory() *cobra.Command { return &cobra.Command{Use: "trajectory"} }
