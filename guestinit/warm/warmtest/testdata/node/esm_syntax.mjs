import { nothing } from 'node:fs';
