// Command init-exits is a guest init that ends at once: the kernel panics.
package main

func main() {}
