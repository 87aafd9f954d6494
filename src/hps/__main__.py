from hps.cli import main

raise SystemExit(main())
