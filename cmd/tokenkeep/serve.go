package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tokenkeep/tokenkeep/internal/config"
	"github.com/tokenkeep/tokenkeep/internal/server"
)

func serveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Runs the server until SIGTERM or SIGINT, then lets the requests under way
finish. SIGHUP reads the TLS files again.

Settings come from the file, then from TOKENKEEP_… variables, then from flags;
'tokenkeep config settings' lists them all. Nothing starts while a setting is
unknown, wrong or unsafe.`,
		Example: "  tokenkeep serve --config /etc/tokenkeep/tokenkeep.yaml",
		Args:    cobra.NoArgs,
	}
	load := settingFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		conf, err := load()
		if err != nil {
			return err
		}
		l, err := inheritedListener()
		if err != nil {
			return err
		}
		return serve(c.Context(), conf, newLogger(conf, c.ErrOrStderr()), l, func(context.Context, *server.Server) error { return nil })
	}
	return c
}

// settingFlags gives a command --config and a flag for every setting, and
// returns what loads them.
func settingFlags(c *cobra.Command) (load func() (*config.Config, error)) {
	path := c.Flags().String("config", os.Getenv("TOKENKEEP_CONFIG"), "configuration file (YAML)")
	values := make(map[string]*string)
	for _, s := range config.Settings() {
		if !s.Secret {
			values[s.Name] = c.Flags().String(s.Flag(), s.Default, s.Doc)
		}
	}
	return func() (*config.Config, error) {
		given := make(map[string]string)
		for _, s := range config.Settings() {
			if v, ok := values[s.Name]; ok && c.Flags().Changed(s.Flag()) {
				given[s.Name] = *v
			}
		}
		return config.Load(*path, os.Environ(), given)
	}
}

func newLogger(c *config.Config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// serve runs a server until it is told to stop. A second signal ends it at once.
func serve(ctx context.Context, conf *config.Config, log *slog.Logger, l net.Listener, ready func(context.Context, *server.Server) error) error {
	endings := []os.Signal{syscall.SIGTERM, os.Interrupt}
	if conf.Dev {
		endings = append(endings, syscall.SIGHUP) // the terminal was closed
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	told := make(chan os.Signal, 1)
	signal.Notify(told, endings...)
	go func() {
		defer stop()
		select {
		case <-told:
		case <-ctx.Done():
		}
		// Signals have their usual effect from here on, before anybody can see
		// that the server stops: a second one is never lost.
		signal.Stop(told)
	}()

	collectLess()
	s, err := server.New(ctx, conf, server.Options{Logger: log, Version: release(), Listener: l})
	if err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	if !conf.Dev {
		signal.Notify(hangups, syscall.SIGHUP)
	}
	defer signal.Stop(hangups)
	go func() {
		for {
			select {
			case <-hangups:
				if err := s.Reload(); err != nil {
					log.Error("the TLS files were not taken over", "cause", err)
				} else {
					log.Info("the TLS files were read again")
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := ready(ctx, s); err != nil {
		stop()
		return errors.Join(err, s.Run(ctx))
	}
	log.Info("serving", "base_url", s.BaseURL(), "version", release())
	return s.Run(ctx)
}

// collectLess lets more garbage gather before it is collected: what lives is a
// few megabytes, and requests make much that does not. Whoever sets GOGC has
// the last word; GOMEMLIMIT counts as ever.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// inheritedListener returns the socket that the process was started with, as
// systemd's socket units do it: it stays open across restarts, so that nobody
// is turned away meanwhile. Nil when there is none.
func inheritedListener() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) || os.Getenv("LISTEN_FDS") == "" {
		return nil, nil
	}
	if os.Getenv("LISTEN_FDS") != "1" {
		return nil, &usageError{errors.New("LISTEN_FDS hands over more than one socket, and the server takes one")}
	}
	f := os.NewFile(3, "inherited socket")
	defer func() { _ = f.Close() }()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the inherited socket cannot be listened on: %w", err)
	}
	return l, nil
}
